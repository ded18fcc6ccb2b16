package demomodel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// What a script does to its answer.
var (
	errReset    = errors.New("the script breaks the stream here")
	errTruncate = errors.New("the script ends the stream here")
)

// plan is one whole answer: steps in order, then the calls.
type plan struct {
	steps []step
	calls []toolCall
	usage *usage // nil: words are counted
	words int    // of the prompt
}

// usage counts tokens.
type usage struct{ in, out int }

// sink is where an answer goes: a stream or one body, on one of the wires.
type sink interface {
	// start opens the answer to a prompt of so many tokens.
	start(in int) error
	// say adds a piece of the text.
	say(piece string) error
	// think adds a piece of the reasoning.
	think(piece string) error
	// call adds a tool call; n counts from 0.
	call(n int, c toolCall) error
	// finish ends the answer; asked tells that it ends in calls.
	finish(asked bool, u usage) error
	// breakOff leaves the answer unfinished, with a part of it on its way.
	breakOff()
}

func (r *request) plan() plan {
	p := plan{words: r.promptWords()}
	if text, ok := r.side(); ok {
		p.steps = []step{{kind: stepSay, text: text}}
		return p
	}
	last := r.prompt()
	if last < 0 {
		p.steps = []step{{kind: stepSay, text: r.remember(len(r.messages))}}
		return p
	}
	s, commanded := parseScript(r.messages[last].commands())
	p.usage = s.usage
	before, calls, after := s.split()
	results := r.results(last)
	switch {
	case len(results) > 0:
		p.steps = append([]step{{kind: stepSay, text: report(results)}}, after...)
	case commanded:
		p.steps = before
		p.askFor(r, calls)
		if len(p.calls) == 0 {
			// No result will come that the rest could wait for.
			p.steps = append(p.steps, after...)
		}
	default:
		p.steps = []step{{kind: stepSay, text: r.remember(last)}}
	}
	return p
}

// results lists the results that follow the message at last.
func (r *request) results(last int) []message {
	var found []message
	for _, m := range r.messages[last+1:] {
		if m.role == roleTool {
			found = append(found, m)
		}
	}
	return found
}

// split cuts a script into what comes before its first call, the calls (all of
// them go out at once), and what waits for their results.
func (s script) split() (before, calls, after []step) {
	isCall := func(st step) bool { return st.kind == stepCall || st.kind == stepBash }
	first := slices.IndexFunc(s.steps, isCall)
	if first < 0 {
		return s.steps, nil, nil
	}
	for _, st := range s.steps[first:] {
		if isCall(st) {
			calls = append(calls, st)
		} else {
			after = append(after, st)
		}
	}
	return slices.Clone(s.steps[:first]), calls, after
}

// askFor adds the calls of tools that are offered; for the others it says that
// they are not.
func (p *plan) askFor(r *request, calls []step) {
	for _, st := range calls {
		c, refused := r.fulfil(st)
		if refused != "" {
			p.steps = append(p.steps, step{kind: stepSay, text: refused})
			continue
		}
		c.id = r.callID(len(p.calls))
		p.calls = append(p.calls, c)
	}
}

// fulfil makes the call that a step asks for, or says why there is none.
func (r *request) fulfil(st step) (c toolCall, refused string) {
	if st.kind == stepBash {
		if o, args, ok := shell(r.tools, st.text); ok {
			return toolCall{namespace: o.namespace, name: o.name, args: args}, ""
		}
		return toolCall{}, "I was not offered a shell, so I did not run the command."
	}
	o, ok := resolve(st.tool, r.tools)
	if !ok {
		return toolCall{}, fmt.Sprintf("I was not offered a tool %s, so I did not call it.", clip(st.tool, 128))
	}
	return toolCall{namespace: o.namespace, name: o.name, args: st.args}, ""
}

// failure is the scripted HTTP status, or 0, and how long to wait before it.
// It stands for the whole answer, texts before it included; a break before it
// wins, because then the answer has begun.
func (p *plan) failure() (status int, wait time.Duration) {
	for _, st := range p.steps {
		switch st.kind {
		case stepSleep:
			wait += st.wait
		case stepError:
			return st.status, wait
		case stepReset, stepTruncate:
			return 0, 0
		case stepSay, stepThink, stepRepeat, stepCall, stepBash:
		}
	}
	return 0, 0
}

// run carries the plan out. It returns errReset or errTruncate where the script
// says so, and the error of ctx or of the sink.
func (p *plan) run(ctx context.Context, out sink) error {
	u := usage{in: p.words}
	if p.usage != nil {
		u = *p.usage
	}
	if err := out.start(u.in); err != nil {
		return err
	}
	w := &writer{out: out}
	for _, st := range p.steps {
		if err := w.step(ctx, st); err != nil {
			return err
		}
	}
	for n, c := range p.calls {
		if err := out.call(n, c); err != nil {
			return err
		}
		w.words++
	}
	if p.usage == nil {
		u.out = w.words
	}
	return out.finish(len(p.calls) > 0, u)
}

// writer carries out steps and counts words.
type writer struct {
	out     sink
	words   int
	said    bool
	thought bool
}

func (w *writer) step(ctx context.Context, st step) error {
	switch st.kind {
	case stepSay:
		return w.put(ctx, w.out.say, newLine(&w.said)+st.text)
	case stepThink:
		return w.put(ctx, w.out.think, newLine(&w.thought)+st.text)
	case stepRepeat:
		return w.repeat(ctx, st)
	case stepSleep:
		return pause(ctx, st.wait)
	case stepReset:
		w.out.breakOff()
		return errReset
	case stepTruncate:
		w.out.breakOff()
		return errTruncate
	case stepCall, stepBash, stepError:
		// A plan keeps calls apart, and an answer with an error is none.
	}
	return nil
}

func (w *writer) repeat(ctx context.Context, st step) error {
	before := newLine(&w.said)
	for range st.count {
		if err := w.put(ctx, w.out.say, before+st.text); err != nil {
			return err
		}
		before = " "
	}
	return nil
}

// put writes text word by word.
func (w *writer) put(ctx context.Context, piece func(string) error, text string) error {
	for word := range words(text) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := piece(word); err != nil {
			return err
		}
		w.words++
	}
	return nil
}

// newLine is what stands between two texts: nothing before the first.
func newLine(begun *bool) string {
	if *begun {
		return "\n"
	}
	*begun = true
	return ""
}

// words cuts text into words, each with the blanks before it, and a word that
// is longer than 256 bytes into several. Joined, the pieces are the text.
func words(text string) iter.Seq[string] {
	const longest = 256
	return func(yield func(string) bool) {
		for text != "" {
			word := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
			if blank := strings.IndexFunc(text[word:], unicode.IsSpace); blank >= 0 {
				word += blank
			} else {
				word = len(text)
			}
			if word > longest {
				word = longest
				for word > longest-utf8.UTFMax && !utf8.RuneStart(text[word]) {
					word--
				}
			}
			if !yield(text[:word]) {
				return
			}
			text = text[word:]
		}
	}
}
