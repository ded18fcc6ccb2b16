// Package chaosreplicas lets people talk with an agent through three replicas of
// the control plane, while replicas, workers and their host are killed, leases
// replaced, runs cancelled and streams dropped, all by chance. Whatever happens when:
// every run has exactly one terminal, every stream that anybody read is a beginning
// of the log, a run that was taken out of service gets nothing but what closes it,
// and nothing is left of what was under way:
// `make chaos-replicas DURATION=10m`, and a short one as a test.
package chaosreplicas
