// Package credential gets the credentials with which MCP servers are called.
//
// A credential belongs to one server, and where it is a subject's to that subject. It is fetched when it is needed, by one
// caller at a time, and kept until shortly before it expires; a server that does
// not take it makes it be fetched anew for the next request. No error of this
// package holds a byte of one, nor of what a token endpoint or a program said.
package credential
