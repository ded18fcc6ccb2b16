// Package certify tries one harness adapter of an installation against the fifteen
// requirements of the Sandbox Worker Protocol v1, "Conformance". It starts a stack of
// its own from the installation's programs and checks each requirement on what really
// runs: sandboxes, brokers, capabilities that were taken from a worker's memory,
// listeners that nobody in a sandbox may reach.
//
// A check says passed only for what it has seen in this run, after it has seen that it
// would notice the contrary wherever that can be had: a stale call was granted before
// the lease was replaced, a forbidden address answers from outside of the sandbox. What
// cannot be seen on one machine is not_run, with what to do, and keeps a harness from
// being certified.
//
// How the checks look is theirs; what they conclude is a function of what they saw, the
// names of which begin with judge. The tests give these what a broken installation would
// show.
package certify
