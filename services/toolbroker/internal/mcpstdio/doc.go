// Package mcpstdio runs one MCP server as a child process and speaks to it over
// its standard streams.
//
// The protocol is the official SDK's: negotiation, request ids, cancellation.
// What the SDK does not tell its caller is told by a tap on its connection:
// whether a request left at all, and what exactly was answered. The first decides
// whether a call may ever be made again; the second keeps a result that the SDK
// cannot decode from being taken for a broken connection.
//
// A child gets the environment that it is configured with and nothing else, no
// descriptor but its standard streams, cannot get further rights by executing a
// file, and does not outlive this process. In a World it reaches neither the
// files, the memory nor the sockets of the broker. It is not trusted: it can stop reading, never answer, answer what is no JSON, or die,
// and whoever called is told so within the deadline of its context.
package mcpstdio
