// Package elicit turns the questions of MCP servers (elicitation/create, form mode)
// into forms that a person fills in, and what was filled in into what the server
// gets.
//
// A question is a server's word and nothing more: it is bounded, cleaned, and held
// to the flat schemas that the protocol knows. One that is not is none.
package elicit
