// Package linearizability records what many clients in several processes see of
// the writes that decide, while answers get lost and processes are killed, and has
// porcupine say whether one order of those writes explains it all: for each
// binding its runs, its generation, its head and its effects, and for each memory
// record its revisions. It runs on every back end; `make linearizability` is its
// command.
//
// A client that gives up, or is killed, leaves an operation whose outcome nobody
// knows: it may have happened at any later moment, or never. Everything else has
// to be explained exactly. That the checker sees anything at all is shown by
// planting writes without their fence, each of which it has to find.
package linearizability

// Backends that a history can be made on.
const (
	SQLite  = "sqlite"
	MongoDB = "mongodb"
)
