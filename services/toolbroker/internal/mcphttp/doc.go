// Package mcphttp speaks to one MCP server over streamable HTTP.
//
// The official SDK negotiates (the stateless revision 2026-07-28 and those before
// it, with or without a session), numbers requests and sets the headers of the
// protocol. Between it and the network stands a tap, an http.RoundTripper that
// decides everything that a call at most once hangs on:
//
//   - Each message is one POST, over HTTP/1.1, and follows no redirect. A request
//     counts as sent from the moment that the first byte of its body is read, and
//     nothing sends it again: no stream is resumed on its behalf.
//   - Answers, JSON or event stream, are read here within bounds. The SDK gets a
//     small answer in their place, so that what a server says cannot break what
//     other calls stand on.
//   - A session that the server no longer knows (404) is over at once for
//     everybody: the call that met it has no answer, and whoever runs this server
//     makes a new session for the next.
//   - Requests of the server are answered: a ping with a pong, a question to the
//     user as the call brings it or with cancel, everything else with an error, for
//     neither roots nor sampling are offered.
package mcphttp
