// Package mcpcall has what a connection to an MCP server needs over any
// transport: requests of which it is known for certain whether they left and what
// was answered, and lists of tools that are bounded.
//
// The protocol is the official SDK's. A transport puts a tap between the SDK and
// the wire and tells the [Exchange] of a request what passes there. The SDK gets
// an answer that it can decode in place of the real one, so that nothing a server
// says in a result can break the connection for the others.
package mcpcall
