package chaosstate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cofferdam.dev/tests/internal/apiclient"
)

const (
	// recalled is how many turns a conversation tells of: one fewer than the harness
	// remembers.
	recalled = 31
	// uncertain is the code of a turn of which nobody knows whether it was saved.
	uncertain = "thread_durability_uncertain"
	finished  = "run.finished"
	failed    = "run.error"
)

// outcome is what became of a turn.
type outcome struct {
	mark, runID string
	// terminal is its type, code that of an error, and revision the head's that it
	// committed, 0 if it did not.
	terminal, code string
	revision       uint64
	// loaded are the marks of the turns that it found; known is false where it ended
	// before it had said all of them.
	loaded []string
	known  bool
	// unheard says that all along no state facade lived to say that a head had moved.
	unheard bool
}

// thread is what is known of a conversation.
type thread struct {
	name string
	// saved are the marks of the turns that were said to be saved, in order, and
	// unsaved those of the others.
	saved   []string
	unsaved map[string]bool
	// lost and restored are those that were counted already.
	lost, restored map[string]bool
}

func newThread(name string) *thread {
	return &thread{name: name, unsaved: map[string]bool{}, lost: map[string]bool{}, restored: map[string]bool{}}
}

// take judges a turn by what the earlier ones were said to be, and notes what this
// one is said to be.
func (v *thread) take(r *Report, o outcome) {
	say := func(format string, args ...any) {
		r.wrong = append(r.wrong, fmt.Sprintf("%s %s (run %s): ", v.name, o.mark, o.runID)+fmt.Sprintf(format, args...))
	}
	r.Turns++
	if o.known {
		v.compare(r, o.loaded, say)
	}
	violation := func(format string, args ...any) {
		r.Violations++
		say(format, args...)
	}
	switch o.terminal {
	case finished:
		r.Acknowledged++
		if o.unheard {
			r.SavedUnheard++
		}
		v.saved = append(v.saved, o.mark)
		if want := uint64(len(v.saved)); o.revision != want {
			violation("it is saved as revision %d, want %d", o.revision, want)
		}
		if !o.known {
			violation("it finished and did not tell what it found")
		}
	case failed:
		v.unsaved[o.mark] = true
		if o.revision != 0 {
			violation("it failed as %s and has revision %d", o.code, o.revision)
		}
		if o.code == uncertain {
			r.UncertainReported++
		}
	default:
		v.unsaved[o.mark] = true
		violation("it ended with %q", o.terminal)
	}
}

// compare sees that exactly what was said to be saved was found.
func (v *thread) compare(r *Report, loaded []string, say func(string, ...any)) {
	want := v.saved[max(len(v.saved)-recalled, 0):]
	for _, mark := range want {
		if !slices.Contains(loaded, mark) && !v.lost[mark] {
			v.lost[mark] = true
			r.AcknowledgedLost++
			say("%s was said to be saved, and is lost", mark)
		}
	}
	for _, mark := range loaded {
		if !slices.Contains(v.saved, mark) && !v.restored[mark] {
			v.restored[mark] = true
			r.PendingRestored++
			say("%s was not said to be saved, and is there", mark)
		}
	}
	there := slices.DeleteFunc(slices.Clone(loaded), func(m string) bool { return !slices.Contains(want, m) })
	want = slices.DeleteFunc(slices.Clone(want), func(m string) bool { return !slices.Contains(loaded, m) })
	if !slices.Equal(there, want) {
		r.Violations++
		say("found %q, want %q", loaded, want)
	}
}

// script is the message of a turn: it tells what it finds, and leaves its mark.
// ballast makes the state larger than what a record store takes.
func script(mark string, ballast int) string {
	s := fmt.Sprintf(`[{"do":"recall"},{"do":"text","text":%q}`, mark)
	if ballast > 0 {
		s += fmt.Sprintf(`,{"do":"remember","key":"ballast","bytes":%d}`, ballast)
	}
	return s + "]"
}

// marked finds the marks of the messages that a turn tells of.
var marked = regexp.MustCompile(`you said “\[\{"do":"recall"\},\{"do":"text","text":"([^"]+)"`)

// found gives the marks of the turns that a log says were found. known is false
// where the log ends before they were all told: only the message after that shows
// it, since what a dead worker was saying is closed as if it had been said. Each
// answer tells in turn what was found for it: of marks that come again the first
// counts, and one that only an answer tells of comes after a later one.
func found(log []apiclient.Event, text func(apiclient.Event) string) (marks []string, known bool) {
	var said strings.Builder
	begun := 0
	for _, e := range log {
		switch e.Type {
		case "text.delta":
			said.WriteString(text(e))
		case "text.started":
			if begun++; begun < 2 {
				continue
			}
			for _, m := range marked.FindAllStringSubmatch(said.String(), -1) {
				if !slices.Contains(marks, m[1]) {
					marks = append(marks, m[1])
				}
			}
			return marks, true
		}
	}
	return nil, false
}
