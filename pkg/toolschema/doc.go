// Package toolschema checks the arguments of a tool against the JSON Schema that
// the tool's server gave for them.
//
// The schema comes from outside: its size, depth and the work that it can cause
// are bounded, a reference that leads out of it is an error and is never fetched,
// and whatever is wrong with it concerns this one tool. Drafts 4 to 2020-12 are
// understood, 2020-12 where none is named.
package toolschema
