package scripted

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// maxMS bounds what takes time, in milliseconds.
const maxMS = 600_000

func checkMS(ms int) error {
	if ms < 0 || ms > maxMS {
		return fmt.Errorf("ms: 0 to %d", maxMS)
	}
	return nil
}

// textStep says a text, word by word and any number of times.
type textStep struct {
	kind
	Text  string `json:"text"`
	Times int    `json:"times,omitempty"`
	// MS between two words.
	MS int `json:"ms,omitempty"`
}

func (s *textStep) check() error {
	if s.Times < 0 || s.Times > event.MaxRunEvents {
		return errors.New("times: 0 to 100000")
	}
	return checkMS(s.MS)
}

func (s *textStep) play(ctx context.Context, a actor) error {
	id := a.id("text")
	if err := a.draft(ctx, event.TextStarted{MessageID: id}); err != nil {
		return err
	}
	before := ""
	for range max(s.Times, 1) {
		for word := range strings.SplitAfterSeq(s.Text, " ") {
			if err := a.draft(ctx, event.TextDelta{MessageID: id, Delta: before + word}); err != nil {
				return err
			}
			before = ""
			if err := pause(ctx, s.MS); err != nil {
				return err
			}
		}
		before = " "
	}
	a.note(s.Text)
	return a.draft(ctx, event.TextFinished{MessageID: id})
}

func pause(ctx context.Context, ms int) error {
	if ms == 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "scripted.pause")
	}
}

type reasoningStep struct {
	kind
	Text string `json:"text"`
}

func (s *reasoningStep) play(ctx context.Context, a actor) error {
	id := a.id("reasoning")
	return errors.Join(
		a.draft(ctx, event.ReasoningStarted{MessageID: id}),
		a.draft(ctx, event.ReasoningDelta{MessageID: id, Delta: s.Text}),
		a.draft(ctx, event.ReasoningFinished{MessageID: id}))
}

type usageStep struct {
	kind
	Input  uint64 `json:"input"`
	Output uint64 `json:"output"`
	Final  bool   `json:"final,omitempty"`
}

func (s *usageStep) play(ctx context.Context, a actor) error {
	return a.draft(ctx, event.UsageUpdated{InputTokens: &s.Input, OutputTokens: &s.Output, Final: s.Final})
}

type warningStep struct {
	kind
	Code string `json:"code"`
	Text string `json:"text"`
}

func (s *warningStep) play(ctx context.Context, a actor) error {
	return a.draft(ctx, event.Warning{Code: s.Code, Message: s.Text})
}

// draftStep emits a draft that is valid by itself, lawful or not.
type draftStep struct {
	kind
	Draft json.RawMessage `json:"draft"`
}

func (s *draftStep) check() error {
	_, err := event.DecodeDraft(s.Draft, event.Bounds{})
	return err
}

func (s *draftStep) play(ctx context.Context, a actor) error {
	d, err := event.DecodeDraft(s.Draft, event.Bounds{})
	if err != nil {
		return fault.Wrap(err, fault.InvalidRequest, "scripted.draft")
	}
	return a.emit.Emit(ctx, d)
}

type delayStep struct {
	kind
	MS int `json:"ms"`
}

func (s *delayStep) check() error { return checkMS(s.MS) }

func (s *delayStep) play(ctx context.Context, _ actor) error { return pause(ctx, s.MS) }

// parallelStep plays branches side by side.
type parallelStep struct {
	kind
	Branches []json.RawMessage `json:"branches"`

	parsed []script
}

func (s *parallelStep) parse(hostile bool) error {
	for i, b := range s.Branches {
		p, err := parseAt(b, hostile, false)
		if err != nil {
			return fmt.Errorf("branch %d: %w", i+1, err)
		}
		s.parsed = append(s.parsed, p)
	}
	if len(s.parsed) == 0 || len(s.parsed) > event.MaxOpenTools {
		return errors.New("branches: 1 to 64")
	}
	return nil
}

func (s *parallelStep) play(ctx context.Context, a actor) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, b := range s.parsed {
		g.Go(func() error { return a.steps(gctx, b) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return fault.From(ctx.Err(), "scripted.parallel")
		}
		return err
	}
	return nil
}

// subagentStep plays steps in a namespace of their own.
type subagentStep struct {
	kind
	Name  string          `json:"name"`
	Steps json.RawMessage `json:"steps"`

	parsed script
}

func (s *subagentStep) parse(hostile bool) (err error) {
	if !event.ValidID(s.Name) {
		return errors.New("name: an id")
	}
	s.parsed, err = parseAt(s.Steps, hostile, false)
	return err
}

func (s *subagentStep) play(ctx context.Context, a actor) error {
	call := a.id("agent")
	below := actor{run: a.run, namespace: append(slices.Clone(a.namespace), s.Name)}
	if err := errors.Join(
		a.draft(ctx, event.ToolStarted{ToolCallID: call, ToolName: "agent." + s.Name, Arguments: event.EmptyObject}),
		below.draft(ctx, event.NamespaceEntered{AgentID: s.Name, AgentName: s.Name, ParentToolCallID: call})); err != nil {
		return err
	}
	if err := below.steps(ctx, s.parsed); err != nil {
		return err
	}
	return errors.Join(
		below.draft(ctx, event.NamespaceExited{AgentID: s.Name, ParentToolCallID: call, Outcome: event.NamespaceSuccess}),
		a.draft(ctx, event.ToolFinished{ToolCallID: call, Result: `"done"`}))
}

type recallStep struct{ kind }

func (*recallStep) play(ctx context.Context, a actor) error { return a.say(ctx, a.recall()) }

// rememberStep keeps a value in the thread state: a text, or as many bytes.
type rememberStep struct {
	kind
	Key   string `json:"key"`
	Text  string `json:"text,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
}

func (s *rememberStep) check() error {
	if !event.ValidID(s.Key) || s.Bytes < 0 || s.Bytes > maxState {
		return errors.New("key: an id; bytes: 0 to 64 MiB")
	}
	return nil
}

func (s *rememberStep) play(_ context.Context, a actor) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.Kept == nil {
		a.state.Kept = map[string]string{}
	}
	a.state.Kept[s.Key] = s.Text + strings.Repeat("x", s.Bytes)
	return nil
}

type memoryGetStep struct {
	kind
	Scope harness.MemoryScope `json:"scope"`
	Key   string              `json:"key"`
}

func (s *memoryGetStep) play(ctx context.Context, a actor) error {
	if a.Memory == nil {
		return a.outcome(ctx, "memory", fault.New(fault.MemoryScopeDenied, "scripted.memory"))
	}
	r, err := a.Memory.Get(ctx, s.Scope, s.Key)
	if err != nil {
		return a.outcome(ctx, "memory", err)
	}
	return a.say(ctx, fmt.Sprintf("memory %s (%s) at %d: %s", s.Key, r.Kind, r.Revision, r.Content))
}

type memoryPutStep struct {
	kind
	Scope    harness.MemoryScope `json:"scope"`
	Key      string              `json:"key"`
	Text     string              `json:"text"`
	Revision uint64              `json:"revision,omitempty"`
	// Kind is semantic where it is empty.
	Kind string `json:"kind,omitempty"`
}

func (s *memoryPutStep) play(ctx context.Context, a actor) error {
	if a.Memory == nil {
		return a.outcome(ctx, "memory", fault.New(fault.MemoryScopeDenied, "scripted.memory"))
	}
	written, err := a.Memory.Put(ctx, a.id("memory"), s.Scope, s.Key, harness.MemoryRecord{
		Kind: cmp.Or(s.Kind, "semantic"), ContentType: "text/plain", Content: []byte(s.Text), Revision: s.Revision,
	})
	if err != nil {
		return a.outcome(ctx, "memory", err)
	}
	return a.say(ctx, fmt.Sprintf("memory %s is now at %d", s.Key, written.Revision))
}

// outcome says with which code something failed; what ends the run is its error.
func (a actor) outcome(ctx context.Context, what string, err error) error {
	f := fault.From(err, "scripted."+what)
	if ctx.Err() != nil || endsRun(f) {
		return f
	}
	return a.say(ctx, what+" failed: "+string(f.Code()))
}

func endsRun(f *fault.Error) bool {
	return slices.Contains([]fault.Code{fault.StaleLease, fault.Cancelled, fault.DeadlineExceeded, fault.CapabilityExpired}, f.Code())
}

// filesStep says what files came with the turn.
type filesStep struct{ kind }

func (*filesStep) play(ctx context.Context, a actor) error {
	for _, f := range a.files {
		content, err := a.Files.Read(ctx, f, 64<<20)
		if err != nil {
			return a.outcome(ctx, "file", err)
		}
		sum := sha256.Sum256(content)
		if err := a.say(ctx, fmt.Sprintf("file %s: %d bytes, sha256 %s", f.DisplayName, len(content), hex.EncodeToString(sum[:]))); err != nil {
			return err
		}
	}
	return nil
}

// uploadStep writes a file through the first upload handle that is left.
type uploadStep struct {
	kind
	Name string `json:"name"`
	Text string `json:"text"`
	// Bytes is how much comes after the text.
	Bytes int `json:"bytes,omitempty"`
}

func (s *uploadStep) check() error {
	if s.Bytes < 0 || s.Bytes > maxState {
		return errors.New("bytes: 0 to 64 MiB")
	}
	return nil
}

func (s *uploadStep) play(ctx context.Context, a actor) error {
	a.mu.Lock()
	uploads := a.uploads
	if len(uploads) > 0 {
		a.uploads = uploads[1:]
	}
	a.mu.Unlock()
	if len(uploads) == 0 {
		return a.say(ctx, "upload failed: no handle is left")
	}
	id, err := a.Files.Write(ctx, uploads[0], s.Name, "text/plain", []byte(s.Text+strings.Repeat("x", s.Bytes)))
	if err != nil {
		return a.outcome(ctx, "upload", err)
	}
	return a.say(ctx, "uploaded "+id)
}
