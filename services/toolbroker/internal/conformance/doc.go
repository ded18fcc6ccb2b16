// Package conformance runs the client scenarios of the MCP project's conformance
// suite against the client that the broker calls servers with. It has tests alone.
package conformance
