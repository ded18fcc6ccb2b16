// Package project makes what a tool answered fit for an event: one JSON value of
// bounded size, without characters that may not stand in an event, and without
// the credential that the call was made with.
//
// The value has the shape of an MCP result. Text stays text; structured content
// stays what it is, numbers exact; of images, sound and other binary data only
// type and size are told. What does not fit is left out, and the result says so.
package project
