package session

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// outside are facades that answer with an error, or wait for the end of their
// context.
type outside struct {
	err  error
	hang bool
}

func (o outside) answer(ctx context.Context) error {
	if o.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return o.err
}

func (o outside) Call(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
	return harness.ToolResult{}, o.answer(ctx)
}

func (o outside) Read(ctx context.Context, _ harness.File, _ int) ([]byte, error) {
	return nil, o.answer(ctx)
}

func (o outside) Write(ctx context.Context, _ harness.Upload, _, _ string, _ []byte) (string, error) {
	return "obj", o.answer(ctx)
}

func (o outside) Get(ctx context.Context, _ harness.MemoryScope, _ string) (harness.MemoryRecord, error) {
	return harness.MemoryRecord{}, o.answer(ctx)
}

func (o outside) Search(ctx context.Context, _ harness.MemoryScope, _ harness.MemoryQuery) (harness.MemoryFound, error) {
	return harness.MemoryFound{}, o.answer(ctx)
}

func (o outside) Put(ctx context.Context, _ string, _ harness.MemoryScope, _ string, _ harness.MemoryRecord) (harness.MemoryWritten, error) {
	return harness.MemoryWritten{Revision: 1}, o.answer(ctx)
}

func (o outside) Delete(ctx context.Context, _ string, _ harness.MemoryScope, _ string, _ uint64) error {
	return o.answer(ctx)
}

func (o outside) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.err != nil {
		return nil, o.err
	}
	body := io.NopCloser(strings.NewReader("answer"))
	if o.hang {
		body = io.NopCloser(hanging{r.Context()})
	}
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// hanging is a body that comes to nothing until its request ends.
type hanging struct{ ctx context.Context } //nolint:containedctx // as the transport has it

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func (o outside) facades() harness.Facades {
	return harness.Facades{Tools: o, Files: o, Memory: o, Model: harness.Model{HTTP: &http.Client{Transport: o}}}
}

// doing calls a facade and ends in an error.
type doing func(ctx context.Context, f harness.Facades, emit harness.Emitter) error

func callTool(id string) doing {
	return func(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
		_, err := f.Tools.Call(ctx, harness.ToolCall{CallID: id, ToolID: "fs.write"})
		return err
	}
}

func put(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
	_, err := f.Memory.Put(ctx, "call", harness.MemoryUser, "key", harness.MemoryRecord{})
	return err
}

func upload(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
	_, err := f.Files.Write(ctx, harness.Upload{Handle: "h"}, "n", "text/plain", nil)
	return err
}

// What a run says of its effects is true of every effect outside: of tool calls,
// of what was remembered, and of files that were written.
func TestSideEffects(t *testing.T) {
	gone := fault.New(fault.ModelFailed, "test")
	unknown, refusal := fault.New(fault.ToolOutcomeUnknown, "test"), fault.New(fault.ToolDenied, "test")
	both := func(first, second doing) doing {
		return func(ctx context.Context, f harness.Facades, emit harness.Emitter) error {
			return errors.Join(first(ctx, f, emit), second(ctx, f, emit))
		}
	}
	emits := func(data ...event.Data) doing {
		return func(ctx context.Context, _ harness.Facades, emit harness.Emitter) error {
			return emitAll(ctx, emit, data...)
		}
	}
	started := event.ToolStarted{ToolCallID: "c", ToolName: "fs.write", Arguments: event.EmptyObject}
	own := event.ToolStarted{ToolCallID: "c", ToolName: "bash", Arguments: event.EmptyObject}
	finished := event.ToolFinished{ToolCallID: "c", Result: `1`}
	for name, c := range map[string]struct {
		err  error
		does doing
		want event.SideEffectStatus
	}{
		"nothing":                        {nil, func(context.Context, harness.Facades, harness.Emitter) error { return nil }, event.SideEffectsNone},
		"a call":                         {nil, callTool("c"), event.SideEffectsKnown},
		"a call that was refused":        {refusal, callTool("c"), event.SideEffectsNone},
		"a call of unknown outcome":      {unknown, callTool("c"), event.SideEffectsPossible},
		"a call that only was announced": {nil, emits(started), event.SideEffectsNone},
		"a call with its events":         {nil, both(emits(started), both(callTool("c"), emits(finished))), event.SideEffectsKnown},
		"a tool of the harness":          {nil, emits(own, finished), event.SideEffectsKnown},
		"an open tool of the harness":    {nil, emits(own), event.SideEffectsPossible},
		"a record":                       {nil, put, event.SideEffectsKnown},
		"a record of unknown outcome":    {unknown, put, event.SideEffectsPossible},
		"a record of another revision":   {fault.New(fault.MemoryRevisionConflict, "test"), put, event.SideEffectsNone},
		"a file":                         {nil, upload, event.SideEffectsKnown},
		"a file of unknown outcome":      {fault.New(fault.DependencyUnavailable, "test"), upload, event.SideEffectsPossible},
		"a file that is too large":       {fault.New(fault.RequestTooLarge, "test"), upload, event.SideEffectsNone},
		"a call and a file":              {nil, both(callTool("c"), upload), event.SideEffectsKnown},
		"of two the worse":               {unknown, both(callTool("c"), emits(own, finished)), event.SideEffectsPossible},
		"reading": {nil, func(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
			_, err := f.Files.Read(ctx, harness.File{}, 1)
			return err
		}, event.SideEffectsNone},
		"remembering": {nil, func(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
			_, err := f.Memory.Get(ctx, "user", "k")
			return err
		}, event.SideEffectsNone},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t)
			w.bind(t, writable())
			w.connector.more = outside{err: c.err}.facades()
			w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
				_ = c.does(ctx, f, emit)
				return harness.Result{}, gone
			})
			got, ok := ends(t, w.start(t, "run-1")).(event.RunError)
			if !ok || got.SideEffectStatus != c.want {
				t.Errorf("it says %+v", got)
			}
		})
	}
}

// A call that is refused when it is repeated may have had its effect before, and
// one that is refused while another is under way says nothing of that.
func TestSideEffectsOfARepeatedCall(t *testing.T) {
	refusal, lost := fault.New(fault.ToolDenied, "test"), context.Canceled
	const none, known, possible = event.SideEffectsNone, event.SideEffectsKnown, event.SideEffectsPossible
	// step begins so many calls under one key, or ends one of them.
	type step struct {
		begin int
		err   error
		want  event.SideEffectStatus
	}
	for name, steps := range map[string][]step{
		"one after the other": {
			{1, nil, possible},
			{0, refusal, none},
			{1, nil, possible},
			{0, lost, possible},
			{1, nil, possible},
			{0, refusal, possible},
			{1, nil, possible},
			{0, nil, known},
			{1, nil, possible},
			{0, refusal, known},
			{1, nil, possible},
			{0, lost, known},
		},
		"at once, both refused":        {{2, nil, possible}, {0, refusal, possible}, {0, refusal, none}},
		"at once, refused and lost":    {{2, nil, possible}, {0, refusal, possible}, {0, lost, possible}},
		"at once, lost and refused":    {{2, nil, possible}, {0, lost, possible}, {0, refusal, possible}},
		"at once, answered and lost":   {{2, nil, possible}, {0, nil, possible}, {0, lost, known}},
		"at once, lost and answered":   {{2, nil, possible}, {0, lost, possible}, {0, nil, known}},
		"three, of which one is lost":  {{2, nil, possible}, {0, refusal, possible}, {1, nil, possible}, {0, lost, possible}, {0, refusal, possible}},
		"three, of which all are late": {{3, nil, possible}, {0, refusal, possible}, {0, refusal, possible}, {0, refusal, none}},
	} {
		e := make(effects)
		for n, s := range steps {
			for range s.begin {
				e.begin("k")
			}
			if s.begin == 0 {
				e.end("k", s.err)
			}
			if got := e.status(); got != s.want {
				t.Errorf("%s, step %d: %s, want %s", name, n, got, s.want)
			}
		}
	}
}

// A resumed run tells of the calls that it carries: those that go through the
// broker by how they went, and those of the harness as what may be.
func TestSideEffectsOfAResumedRun(t *testing.T) {
	for name, c := range map[string]struct {
		tool   string
		decide event.Decision
		want   event.SideEffectStatus
	}{
		"approved, of the broker":  {"fs.write", event.DecisionApprove, event.SideEffectsNone},
		"approved, of the harness": {"bash", event.DecisionApprove, event.SideEffectsPossible},
		"rejected, of the harness": {"bash", event.DecisionReject, event.SideEffectsNone},
	} {
		t.Run(name, func(t *testing.T) {
			ask := approval("int-1", "c1")
			ask.ToolApprovals[0].ToolName = c.tool
			w := waiting(t, ask)
			w.adapter.playAnswer(func(context.Context, harness.Decision, harness.Facades, harness.Emitter) (harness.Result, error) {
				return harness.Result{}, fault.New(fault.ModelFailed, "test")
			})
			r, err := w.resume(t, "run-2", decide(ask, on(0, c.decide, "")))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := ends(t, r, event.Carried{ToolCallID: "c1", Decision: c.decide}).(event.RunError)
			if !ok || got.SideEffectStatus != c.want {
				t.Errorf("it says %+v", got)
			}
		})
	}
}

// Authority belongs to a run: what a harness calls with a context of its own ends
// with its run, and is refused afterwards.
func TestFacadesEndWithTheRun(t *testing.T) {
	model := func(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://model.example/v1", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		res, err := f.Model.HTTP.Do(req)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(res.Body)
		return errors.Join(err, res.Body.Close())
	}
	for name, does := range map[string]doing{
		"tool": callTool("c"), "memory": put, "upload": upload, "model": model,
		"download": func(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
			_, err := f.Files.Read(ctx, harness.File{}, 1)
			return err
		},
		"remembering": func(ctx context.Context, f harness.Facades, _ harness.Emitter) error {
			_, err := f.Memory.Get(ctx, "user", "k")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := bound(t)
				w.connector.more = outside{hang: true}.facades()
				answers := make(chan error, 2)
				w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
					own := context.WithoutCancel(ctx)
					answers <- does(own, f, emit)
					answers <- does(own, f, emit)
					return harness.Result{}, ctx.Err()
				})
				r := w.start(t, "run-1")
				synctest.Wait()
				r.Disconnected()
				read(t, r)
				for range 2 {
					if err := <-answers; err == nil {
						t.Error("it went through")
					}
				}
			})
		})
	}
}

// A model's answer that is read to its end, or closed, holds nothing of the run.
func TestModelAnswersAreLetGo(t *testing.T) {
	w := bound(t)
	w.connector.more = outside{}.facades()
	w.adapter.play(func(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		for _, whole := range []bool{true, false} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://model.example/v1", http.NoBody)
			if err != nil {
				return harness.Result{}, err
			}
			res, err := f.Model.HTTP.Do(req)
			if err != nil {
				return harness.Result{}, err
			}
			if whole {
				if text, err := io.ReadAll(res.Body); err != nil || string(text) != "answer" {
					t.Errorf("got %q, %v", text, err)
				}
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
			if res.Request.Context().Err() == nil {
				t.Error("the request still waits for the run")
			}
		}
		return says("x")(ctx, in, f, emit)
	})
	wantEnd(t, ends(t, w.start(t, "run-1")), event.RunFinished{StopReason: "stop"})
}
