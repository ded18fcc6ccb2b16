package linearizability

import (
	"maps"
	"strings"

	"github.com/anishathalye/porcupine"
)

// record is what the model knows of one binding.
type record struct {
	generation uint32
	head       uint64
	run        string
	// touched says that the run has an event or ever had an admission, so that a
	// replacement does not carry it over.
	touched bool
	// ended says that the run's end is decided.
	ended bool
	// effects are the bodies of what happened, by run and key.
	effects map[string]string
}

// remembered is what the model knows of one memory record.
type remembered struct {
	revision uint64
	body     string
}

// step gives every state in which an operation with that outcome may leave the
// model, and none where it cannot have happened.
type step[S any] func(s S, op Operation, o Outcome) []S

func model[S any](initial S, next step[S], equal func(a, b S) bool) porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, output any) []any {
			var out []any
			s, ok := state.(S)
			op, isOp := input.(Operation)
			o, isOutcome := output.(Outcome)
			if !ok || !isOp || !isOutcome {
				return nil
			}
			for _, n := range next(s, op, o) {
				out = append(out, n)
			}
			return out
		},
		Equal: func(a, b any) bool {
			x, xok := a.(S)
			y, yok := b.(S)
			return xok && yok && equal(x, y)
		},
	}
	return nm.ToModel()
}

// ofBindings is the model of the record: the writes 1, 2, 4, 5 and 6 of the
// contract's fencing file.
func ofBindings() porcupine.Model {
	return model(record{}, stepRecord, func(a, b record) bool {
		return a.generation == b.generation && a.head == b.head && a.run == b.run && a.touched == b.touched && a.ended == b.ended &&
			maps.Equal(a.effects, b.effects)
	})
}

func stepRecord(s record, op Operation, o Outcome) []record {
	switch op.Kind {
	case opReplace:
		return s.replace(op, o)
	case opStart:
		return s.start(op, o)
	case opAppend:
		return s.append(op, o)
	case opAdmit:
		return s.admit(op, o)
	case opCommit:
		return s.commit(op, o)
	case opPut:
		return s.wrote(op, o)
	case opGet:
	}
	return nil
}

// wrote is what a write to memory is for the record: it is admitted like any
// effect, also where the store then refuses the revision.
func (s record) wrote(op Operation, o Outcome) []record {
	applies := s.fenced(op) && !s.ended
	admitted := func() record {
		s.touched = true
		return s
	}
	switch o.Result {
	case done, conflict:
		if applies {
			return []record{admitted()}
		}
		return nil
	case refused, stale, unknown:
		return perhaps(s, applies, admitted)
	}
	return nil
}

// fenced says whether a write with the operation's grant matches the record.
func (s record) fenced(op Operation) bool { return s.generation == op.Generation && s.run == op.Run }

// replaced is write 6: a run that has done nothing is carried over.
func (s record) replaced() record {
	s.generation++
	if s.touched || s.ended {
		s.run, s.touched, s.ended = "", false, false
	}
	return s
}

// replace: who repeats, or comes second, is told what stands.
func (s record) replace(op Operation, o Outcome) []record {
	applies, stands := s.generation == op.Generation, s.generation == op.Generation+1
	switch o.Result {
	case done:
		switch {
		case o.Revision != uint64(op.Generation)+1:
		case applies:
			return []record{s.replaced()}
		case stands:
			return []record{s}
		}
		return nil
	case stale:
		return orLost(s, o, !applies && !stands, applies, s.replaced)
	case unknown:
		return perhaps(s, applies, s.replaced)
	case refused:
		return []record{s}
	case conflict:
	}
	return nil
}

// perhaps gives both: it happened where it could, or it did not.
func perhaps[S any](s S, applies bool, apply func() S) []S {
	if applies {
		return []S{s, apply()}
	}
	return []S{s}
}

// orLost is a refusal that says that something else stands. Where an answer was
// lost on the way, the refusal may be that of the repeat: the write happened, and
// was overtaken by others before the repeat came.
func orLost[S any](s S, o Outcome, refusable, applies bool, apply func() S) []S {
	var out []S
	if refusable {
		out = append(out, s)
	}
	if o.Lost && applies {
		out = append(out, apply())
	}
	return out
}

func (s record) start(op Operation, o Outcome) []record {
	applies := s.run == "" || s.ended // one that has ended leaves the record by itself
	started := func() record {
		s.run, s.touched, s.ended = op.Run, false, false
		return s
	}
	switch o.Result {
	case done:
		if applies {
			return []record{started()}
		}
		return nil
	case unknown:
		return perhaps(s, applies, started)
	case refused, stale:
		return orLost(s, o, true, applies, started)
	case conflict:
	}
	return nil
}

func (s record) append(op Operation, o Outcome) []record {
	applies := s.fenced(op) && !s.ended
	appended := func() record {
		s.touched = true
		return s
	}
	switch o.Result {
	case done:
		if applies {
			return []record{appended()}
		}
		return nil
	case unknown:
		return perhaps(s, applies, appended)
	case refused, stale: // also where another event took the place
		return orLost(s, o, true, applies, appended)
	case conflict:
	}
	return nil
}

// admit is write 4 with its effect. One that happened before answers again, under
// any grant that was good once.
func (s record) admit(op Operation, o Outcome) []record {
	key := op.Run + "/" + op.Effect
	body, happened := s.effects[key]
	applies := s.fenced(op) && !s.ended
	touched := func() record {
		s.touched = true
		return s
	}
	acted := func() record {
		t := touched()
		t.effects = maps.Clone(t.effects)
		if t.effects == nil {
			t.effects = map[string]string{}
		}
		t.effects[key] = op.ID
		return t
	}
	switch o.Result {
	case done:
		switch {
		case happened && body == o.Body:
			return []record{s}
		case !happened && applies && o.Body == op.ID:
			return []record{acted()}
		}
		return nil
	case unknown:
		out := perhaps(s, applies, touched)
		if applies && !happened {
			out = append(out, acted())
		}
		return out
	case refused, stale: // it may have been admitted and then revoked
		out := perhaps(s, applies, touched)
		if o.Lost && applies && !happened {
			out = append(out, acted())
		}
		return out
	case conflict:
	}
	return nil
}

// commit is write 5: head and end in one.
func (s record) commit(op Operation, o Outcome) []record {
	open := s.fenced(op) && !s.ended
	applies := open && s.head == op.Expected
	committed := func() record {
		s.head++
		s.ended = true
		return s
	}
	switch o.Result {
	case done:
		if applies && o.Revision == op.Expected+1 {
			return []record{committed()}
		}
		return nil
	case stale:
		return orLost(s, o, !open, applies, committed)
	case conflict:
		return orLost(s, o, open && !applies, applies, committed)
	case unknown:
		return perhaps(s, applies, committed)
	case refused:
		return []record{s}
	}
	return nil
}

func ofMemory() porcupine.Model {
	return model(remembered{}, stepMemory, func(a, b remembered) bool { return a == b })
}

func stepMemory(s remembered, op Operation, o Outcome) []remembered {
	applies := s.revision == op.Expected
	put := func() remembered { return remembered{op.Expected + 1, op.ID} }
	switch {
	case op.Kind == opGet && o.Result == done && s == (remembered{o.Revision, o.Body}):
		return []remembered{s}
	case op.Kind == opGet && o.Result != done:
		return []remembered{s}
	case op.Kind != opPut:
		return nil
	}
	switch o.Result {
	case done:
		if applies && o.Revision == op.Expected+1 {
			return []remembered{put()}
		}
		return nil
	case conflict:
		if !applies {
			return []remembered{s}
		}
		return nil
	case unknown:
		return perhaps(s, applies, put)
	case refused, stale: // by the fence: nothing was written, but by a try whose answer was lost
		return perhaps(s, applies && o.Lost, put)
	}
	return nil
}

// parts of a history that have nothing to do with each other, the models of which
// are checked one by one. A write to memory is in two: that of the record, and that
// of the binding.
func parts(history []Entry) map[string][]Entry {
	out := map[string][]Entry{}
	for _, e := range history {
		out[e.Op.Key] = append(out[e.Op.Key], e)
		if e.Op.Binding != "" {
			out[e.Op.Binding] = append(out[e.Op.Binding], e)
		}
	}
	return out
}

const memoryPrefix = "memory/"

// memoryKey keeps the keys of memory apart from bindings.
func memoryKey(name string) string { return memoryPrefix + name }

func isMemory(key string) bool { return strings.HasPrefix(key, memoryPrefix) }
