package certify

import "context"

// Requirement is one of those of the protocol, "Conformance".
type Requirement struct {
	Number int
	// Title is the protocol's own sentence.
	Title string

	check func(context.Context, *world, *ledger)
}

// Requirements are all of them, in the protocol's order.
func Requirements() []Requirement {
	return []Requirement{
		{1, "distinct claim and pod UIDs for concurrent bindings", distinct},
		{2, "same-binding reuse and cross-replica control-plane reconnect", reuse},
		{3, "eviction, hibernation, expiration, clear, replacement, and orphan reconciliation", lifecycle},
		{4, "stale event, state write, resume, and ToolBroker-call fencing", fencing},
		{5, "no cross-binding filesystem/process/environment/network/state visibility", visibility},
		{6, "zero raw credential canaries in environment, mounts, process arguments, logs, core dumps, and artifacts", canaries},
		{7, "default-deny egress and metadata/Kubernetes API denial", egress},
		{8, "resource-limit and infinite-loop containment", containment},
		{9, "canonical stream compatibility, backpressure, cancellation, and client disconnect", streams},
		{10, "warm-pool claim exclusivity and destroy-on-release", pool},
		{11, "signed image, expected digest, RuntimeClass, Pod Security, seccomp, and capability-drop verification", deployment},
		{12, "1,000-binding isolation and capacity testing", many},
		{13, "durable thread restore and ambiguous-commit behavior", threads},
		{14, "user/agent/organization memory scope and revision-conflict behavior", memories},
		{15, "end-to-end trace propagation, redaction, and bounded collector-outage behavior", traces},
	}
}
