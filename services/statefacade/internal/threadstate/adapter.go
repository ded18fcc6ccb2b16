package threadstate

import "golang.org/x/mod/semver"

// Adapter is the harness adapter that a worker runs.
type Adapter struct{ Harness, Version string }

// reads reports whether an adapter may read what the adapter of a thread has
// written: the same version, or a later one of the same major version (semantic
// versions without "v"), which reads what earlier ones wrote or moves it up
// itself. Which format that is, is the codec's to say; this keeps an adapter from
// state whose format it knows and whose meaning has changed.
func (a Adapter) reads(thread Adapter) bool {
	if a == thread {
		return true
	}
	mine, its := "v"+a.Version, "v"+thread.Version
	return a.Harness == thread.Harness && semver.IsValid(mine) && semver.IsValid(its) &&
		semver.Major(mine) == semver.Major(its) && semver.Compare(mine, its) > 0
}
