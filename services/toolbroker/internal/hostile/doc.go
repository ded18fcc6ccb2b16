// Package hostile is an MCP server that misbehaves on request, for the tests of
// the other packages. It is written by hand on the wire and not with the SDK,
// because it has to send what an SDK would not.
//
// A test binary becomes this server when it is started with [Command]; its
// TestMain calls [MainIfAsked] first. Nothing outside of tests may import it.
package hostile
