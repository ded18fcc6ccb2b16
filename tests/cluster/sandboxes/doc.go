// Package sandboxes tests what sandboxes on a real Kubernetes cost and what they hold: how long a claim takes beside the
// bare one of agent-sandbox, that a thousand of them one after another leave nothing, that each limit ends a pod as
// sandbox_limit, and that disks belong to one binding.
//
//	make bench-claim
//	make cluster-bindings BINDINGS=1000
//	make test-sandboxes
package sandboxes
