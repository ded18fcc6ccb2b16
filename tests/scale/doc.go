// Package scale runs many conversations at once, each in a sandbox of its own,
// and looks whether anything of one can be seen in another.
//
// All sandboxes are alive before the first turn. Each conversation has a canary
// in its message, which its agent repeats, commits to its state, and sends along
// with a tool call; afterwards every place in which a canary could stand is read:
// the committed events, the committed state, and of each worker its command line,
// environment, files, memory and log.
package scale
