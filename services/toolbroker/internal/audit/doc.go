// Package audit keeps one durable record of each decision about a tool call and
// of each outcome, apart from logs and traces, which may be sampled or lost.
//
// A record says who (a keyed digest of the subject), which tool, with which
// arguments (their digest), what was decided and why, and what came of it. It
// holds no argument, no result and no name of a person.
//
// A call that is allowed has two records: "decision" is on disk before anything
// leaves for the tool, and "outcome" before the worker gets its answer. A call
// that is refused has a decision alone. An allowed decision without an outcome is
// a call of which this broker did not see the end: the ledger says what is known.
package audit
