// Package eventtest makes valid canonical events for property tests: single
// events of every type, and whole runs that the machine accepts. What encodes
// or carries events is tested against all of them.
package eventtest
