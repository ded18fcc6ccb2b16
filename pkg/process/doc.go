// Package process starts child processes that do not outlive whoever started them.
//
// A child is the leader of a process group of its own. It ends, and its group with it, when [Process.Stop] is called,
// when the context of [Start] ends, when its leader exits, and when this process dies in any way, SIGKILL included. In
// that last case nobody is left to signal the group: the kernel kills the child, and a grandchild only if the child
// started it with this package too.
//
// A child starts from nothing: it has the arguments, environment and descriptors that [Spec] names, and none of its
// parent's.
//
// This is tidiness towards programs that mean well, not a wall around those that do not: a program can leave its group
// and start others that this process knows nothing of. A new pid namespace, asked for with Spec.Attr, closes that way
// out, and the rest of the sandbox is built the same way.
//
// Linux only.
package process
