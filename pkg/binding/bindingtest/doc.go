// Package bindingtest has the suite that every back end of package binding must
// pass (Run), an in-memory back end that does (NewMemory), and what a test needs
// to be unkind to one: lost requests and replies (Tap) and a watch over every
// change of a record (Watch).
//
// Each test of the suite is one numbered invariant of the contract's fencing
// file; Invariants lists them.
package bindingtest
