// Package gate is an MCP server over stdio and HTTP for tests, written from the protocol
// and sharing no code with the client under test. Its tool pass does something
// that can be counted and answers when the test lets it; its tool fingerprint
// shows that the server holds a credential without telling it.
package gate
