// Package escape attacks sandboxes from inside, through the real stack.
//
// Two harnesses do it. A hostile script is code of the worker itself: it has what
// a worker has that was wholly taken over. A hostile program, testdata/hostile.py,
// is what an agent program is: it runs in the world of its own that a worker hosts.
// Both are given the paths, process ids and addresses of what they must not reach,
// as nobody would be.
//
// What they attack is there and answers. Each listener is one of the test, and says
// so to the test itself; each attack of the program is made by the same program
// outside of a sandbox first, where it succeeds. The tests run in a network
// namespace of their own, so that the addresses of metadata services, of a
// Kubernetes API and of resolvers can be on it, and nothing leaves the machine.
//
// Which layer keeps what out is shown elsewhere, as docs/sandbox.md says for each:
// TestLayerAloneHolds of pkg/isolation takes away one layer after the other, and
// TestLimitAloneHolds of pkg/cgroup one limit. That the probes of scripts find what
// they look for where there are no walls is TestProbes of the worker's scripted
// adapter.
package escape
