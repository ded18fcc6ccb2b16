// Package egress makes the HTTP connections of ToolBroker to hosts that somebody
// else names: MCP servers, token endpoints, and what a model wants fetched.
//
// A name is resolved once, every address that it has is checked, and the
// connection is made to one of those very addresses: there is no second look-up
// between the check and the connection. Addresses that are not of the public
// internet are refused unless the operator opened them for this one server, and
// so is HTTP without TLS. There is no proxy, whatever the environment says, no
// HTTP/2 (whose streams a client may send again), no compression, and no redirect
// to another origin.
package egress
