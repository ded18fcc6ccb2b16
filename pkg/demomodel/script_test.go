package demomodel

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestScriptBounds(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"repeat none":          ">>repeat 0 x",
		"repeat too often":     ">>repeat 100001 x",
		"repeat without text":  ">>repeat 5",
		"repeat without count": ">>repeat x y",
		"repeat too much text": ">>repeat 100000 " + strings.Repeat("x", 400),
		"say nothing":          ">>say ",
		"sleep too long":       ">>sleep 60001",
		"sleep backwards":      ">>sleep -1",
		"sleep a word":         ">>sleep long",
		"usage one count":      ">>usage 1",
		"usage negative":       ">>usage 1 -1",
		"usage too much":       ">>usage 1 1000000001",
		"error that is none":   ">>error 200",
		"error beyond":         ">>error 600",
		"call without tool":    ">>call ",
		"call without args":    ">>call fs.x",
		"no command":           ">>",
		"blank before command": ">> say x",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ok := parseScript(text)
			if !ok || len(s.steps) != 1 || s.steps[0].kind != stepSay || s.usage != nil {
				t.Fatalf("%+v", s)
			}
			if got := s.steps[0].text; !strings.HasPrefix(got, "I cannot obey line 1: ") || len(got) > 200 {
				t.Errorf("said %q", got)
			}
		})
	}
}

func TestScriptHasAtMost256Steps(t *testing.T) {
	t.Parallel()
	s, _ := parseScript(strings.Repeat(">>say x\n", 1000))
	if len(s.steps) != maxSteps+1 || !strings.Contains(s.steps[maxSteps].text, "at most 256 commands") {
		t.Errorf("%d steps", len(s.steps))
	}
}

func TestSleepsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := parseScript(strings.Repeat(">>sleep 60000\n", 11))
	if total := totalWait(s); total != maxWait {
		t.Errorf("sleeps for %s", total)
	}
}

func totalWait(s script) time.Duration {
	var total time.Duration
	for _, st := range s.steps {
		total += st.wait
	}
	return total
}

func FuzzParseScript(f *testing.F) {
	for _, seed := range []string{
		"hello", ">>say hi", ">>call a.b {\"x\":[1,{}]}\r\n>>sleep 5", ">>repeat 100000 x", ">>usage 1 2\n>>error 429\n>>reset",
		">>", ">>\n>>", ">>think \xff", "\n\n>>say\u2028x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, found := parseScript(text)
		begins := strings.HasPrefix(text, ">>") || strings.Contains(text, "\n>>")
		if found != begins {
			t.Fatalf("found %v in %q", found, text)
		}
		output := 0
		for _, st := range s.steps {
			switch st.kind {
			case stepRepeat:
				output += st.count * len(st.text)
			case stepThink:
				output += len(st.text)
			case stepError:
				if st.status < 400 || st.status > 599 {
					t.Fatalf("status %d", st.status)
				}
			case stepSay, stepSleep, stepCall, stepReset:
			default:
				t.Fatalf("unknown step %+v", st)
			}
			if joined := strings.Join(collect(st.text), ""); joined != st.text {
				t.Fatalf("words of %q make %q", st.text, joined)
			}
		}
		if output > maxOutput || totalWait(s) > maxWait || len(s.steps) > maxSteps+1 {
			t.Fatalf("a script beyond its bounds: %d bytes, %s, %d steps", output, totalWait(s), len(s.steps))
		}
	})
}

func collect(text string) []string {
	var all []string
	for w := range words(text) {
		if w == "" || len(w) > 256 {
			panic(fmt.Sprintf("a word of %d bytes", len(w)))
		}
		all = append(all, w)
	}
	return all
}

// A call that a person has approved is made, and one that was rejected is not.
func TestApprovedCallsAreMade(t *testing.T) {
	s, found := parseScript("The user has decided on the tool calls that waited for approval.\n" +
		"- Approved: bash with the arguments {\"command\":\"echo {a}. b\"}. Make exactly this call now.\n" +
		"- Approved with a change: fs_write with the arguments {}. Make exactly this call now.\n" +
		"- Rejected: rm with the arguments {}. Do not make this call; go on without it.\n")
	if !found || len(s.steps) != 2 || s.steps[0].kind != stepCall || s.steps[0].tool != "bash" || s.steps[0].args != `{"command":"echo {a}. b"}` ||
		s.steps[1].tool != "fs_write" {
		t.Errorf("%v, %+v", found, s.steps)
	}
}
