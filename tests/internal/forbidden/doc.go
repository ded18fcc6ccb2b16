// Package forbidden has what a sandbox must not get to: metadata services, a Kubernetes
// API, databases, resolvers and hosts outside, each as a listener that answers whoever
// comes and counts it. They are at the addresses of the real ones, and so need a network
// namespace of their own; nothing leaves the machine.
package forbidden
