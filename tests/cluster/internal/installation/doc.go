// Package installation is deploy/kubernetes/overlays/development on the test cluster, as docs/kubernetes.md says that it is
// made, and what tests do with it: conversations by the public API, what operators see, the pods of bindings, and what a
// stale worker can try.
//
// One installation serves all tests of a package, because it takes a minute to start:
//
//	var shared = installation.Config{...}
//
//	func TestMain(m *testing.M) { os.Exit(installation.Main(m)) }
//
//	func TestX(t *testing.T) {
//		i := installation.Shared(t, shared)
//		c := i.Talk(t, installation.Agent)
//		turn := c.Tell(t, ">>say hello")
//		pod := i.Seat(t, turn.BindingID).Pod
//
// Tests leave it as they found it: what they stop they start again, and a conversation gives its sandbox back at the end of
// its test, because the node has room for a few dozen of them.
//
// The model is the demo model of pkg/demomodel, which does what the lines of a message say that begin with ">>". Beside
// the tools of the overlay there is the one of tests/internal/gate, which the tests let through.
//
// COFFERDAM_INSTALLATION names a folder for what an installation keeps outside of the cluster, and leaves it there: tests that
// are run again, on a cluster that stayed up, use what is installed then, and only what was changed is changed.
package installation
