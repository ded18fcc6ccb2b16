// Package chaosstate kills the state facade, workers and the control plane at
// named points in their code ([cofferdam.dev/pkg/failpoint]) while conversations
// go on, and sees what is left of them: each turn that was said to be saved is
// there in the next one, in order, and no other is, whichever of the two the turn
// ended as. `make chaos-state KILLS=1000`, and a smaller size as a test.
//
// The programs are those of bin/failpoint, which `make bin/failpoint` builds.
package chaosstate
