// Package chaostools calls a tool whose effects are counted outside, while the
// ToolBroker, workers and the control plane are killed and leases are replaced.
// Each call has a key of its own. Whatever is killed when, the effect of a key
// happens at most once, never after the replacement that revoked it, and what the
// ledger says of it in the end is true: `make chaos-tools CALLS=1000`, and a
// smaller size as a test.
package chaostools
