//go:build linux

package files

import (
	"path"
	"strings"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// Patterns choose what is archived: patterns of path.Match on slash-separated
// paths relative to the root. One that names a folder means all in it.
type Patterns struct {
	Include, Exclude []string
}

// Validate checks the patterns. The error is harness_options_invalid.
func (p Patterns) Validate() error {
	if len(p.Include) > runnerproto.MaxPatterns || len(p.Exclude) > runnerproto.MaxPatterns {
		return runnerproto.Fail(nil, runnerproto.Options, "too many patterns")
	}
	for _, list := range [][]string{p.Include, p.Exclude} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || !Local(pattern) {
				return runnerproto.Fail(err, runnerproto.Options, "a pattern is not one of a path below the home folder")
			}
		}
	}
	return nil
}

// wanted reports whether the path is archived, and below whether anything under it
// may be.
func (p Patterns) wanted(name string) (in, below bool) {
	if covers(p.Exclude, name) {
		return false, false
	}
	if covers(p.Include, name) {
		return true, true
	}
	for _, pattern := range p.Include {
		if head, longer := first(pattern, depth(name)); longer && matches(head, name) {
			return false, true
		}
	}
	return false, false
}

// covers reports whether a pattern names the path, or a folder above it.
func covers(patterns []string, name string) bool {
	for _, pattern := range patterns {
		n := depth(pattern)
		if head, _ := first(name, n); depth(name) >= n && matches(pattern, head) {
			return true
		}
	}
	return false
}

// first is the path's first n elements, and whether there are more.
func first(p string, n int) (head string, longer bool) {
	for i := range len(p) {
		if p[i] == '/' {
			if n--; n == 0 {
				return p[:i], true
			}
		}
	}
	return p, false
}

// matches is path.Match for a pattern that was validated. An escaped slash or one
// in brackets matches nothing, as path.Match has it.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// under is the path of a name in a folder, which is "" for the root.
func under(folder, name string) string {
	return strings.TrimPrefix(folder+"/"+name, "/")
}
