// Package host lets several replicas of the control plane use one sandbox
// provider of their machine: [Handler] serves a provider, and [Client] is one that
// asks it.
//
// The process that serves it owns the sandboxes. A replica that dies takes none
// with it, and whichever replica comes next finds the same instance under the same
// claim; what ends a sandbox is a Release, a limit, or the end of that process
// (docs/adr/0009-several-replicas.md).
//
// What a provider says stays true over this wire: a claim that is repeated is the
// same claim, so a Client repeats what was not answered. Each Client is told of
// all exits; those that it missed while it was not connected it finds out by
// Alive, as the contract of a provider has it.
package host
