package certify

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome of a check or a requirement.
type Outcome string

// The outcomes. Only Passed says that something holds.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// NotApplicable is what the adapter does not claim, by its descriptor.
	NotApplicable Outcome = "not_applicable"
	// NotRun is what could not be shown, or not as far as the protocol asks for it.
	NotRun Outcome = "not_run"
)

// ProtocolVersion is that of the Sandbox Worker Protocol.
const ProtocolVersion = 1

// Check is one thing that was looked at.
type Check struct {
	Name   string  `json:"name"`
	Result Outcome `json:"result"`
	// Detail is what was seen, why it does not apply, or what to do. It holds no secret
	// and no text of a conversation.
	Detail string `json:"detail,omitempty"`
}

// Result of one requirement: a line of stdout.
type Result struct {
	Requirement int     `json:"requirement"`
	Title       string  `json:"title"`
	Result      Outcome `json:"result"`
	// Reason of a result that is not passed.
	Reason  string             `json:"reason,omitempty"`
	Checks  []Check            `json:"checks"`
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Summary of a run: the closing line.
type Summary struct {
	// Certified is true only if all fifteen requirements have passed in this run.
	Certified       bool   `json:"certified"`
	Profile         string `json:"profile"`
	HarnessID       string `json:"harness_id"`
	AdapterVersion  string `json:"adapter_version"`
	ImageDigest     string `json:"worker_image_digest"`
	ProtocolVersion int    `json:"protocol_version"`
	// Date is when the run ended.
	Date    time.Time       `json:"date"`
	Results map[int]Outcome `json:"results"`
}

// Document is the report of a run, as a file: docs/schemas/certification-v1.json.
type Document struct {
	Summary Summary  `json:"summary"`
	Results []Result `json:"requirements"`
}

// ledger takes down what the checks of one requirement come to.
type ledger struct {
	checks  []Check
	figures map[string]float64
}

// holds takes down a check that passed unless there is an error.
func (l *ledger) holds(name string, err error) {
	if err != nil {
		l.checks = append(l.checks, Check{name, Failed, brief(err.Error())})
		return
	}
	l.checks = append(l.checks, Check{Name: name, Result: Passed})
}

func (l *ledger) notRun(name, todo string) { l.checks = append(l.checks, Check{name, NotRun, todo}) }

func (l *ledger) notApplicable(name, why string) {
	l.checks = append(l.checks, Check{name, NotApplicable, why})
}

func (l *ledger) figure(name string, value float64) {
	if l.figures == nil {
		l.figures = map[string]float64{}
	}
	l.figures[name] = value
}

// brief keeps a detail readable in one line.
func brief(text string) string {
	const most = 600 // bytes
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// result is what a requirement comes to: as bad as its worst check. A requirement
// without a check that passed has not passed.
func (l *ledger) result(r Requirement) Result {
	out := Result{Requirement: r.Number, Title: r.Title, Checks: l.checks, Figures: l.figures}
	for _, worst := range []Outcome{Failed, NotRun, Passed, NotApplicable} {
		at := slices.IndexFunc(l.checks, func(c Check) bool { return c.Result == worst })
		if at < 0 {
			continue
		}
		out.Result = worst
		if c := l.checks[at]; worst != Passed {
			out.Reason = fmt.Sprintf("%s: %s", c.Name, c.Detail)
		}
		return out
	}
	out.Result, out.Reason, out.Checks = NotRun, "nothing was checked", []Check{}
	return out
}

// summarize fills in what the results come to.
func (s *Summary) summarize(results []Result) {
	s.Results = map[int]Outcome{}
	passed := 0
	for _, r := range Requirements() {
		s.Results[r.Number] = NotRun
	}
	for _, r := range results {
		s.Results[r.Requirement] = r.Result
	}
	for _, o := range s.Results {
		if o == Passed {
			passed++
		}
	}
	s.Certified = passed == len(Requirements())
}
