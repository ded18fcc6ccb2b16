// Package impostor attacks brokers from the place of a sandbox's worker. An impostor is
// a process of its own that becomes the user of the worker and has the worker's
// sockets, or its pod's network, and the tokens that were found in its memory: whatever
// a worker can do that was wholly taken over, it can. It can go on when the worker has
// been replaced, which makes it the stale worker that nobody could end.
//
// A program that starts impostors has to call [Serve] where its only argument is
// [Argument].
package impostor
