// Package stack starts the real programs of Cofferdam for tests, through the
// command `cofferdam` and nothing else, and accounts for every process of it.
package stack
