// Package rpc builds the servers and clients of Cofferdam's services, with the
// same door in front of every procedure.
//
// A request passes, in this order: TLS with a SPIFFE allow list, the size
// bounds, the capability (before anything is decoded), recovery from panics,
// tracing, the deadline, the fence, the rules of the schema, the handler. What
// a handler returns becomes a safe error; what it did not mean to tell stays in
// the log under an incident id.
//
// A procedure without a policy cannot be served, and a policy without callers
// refuses everybody.
package rpc
