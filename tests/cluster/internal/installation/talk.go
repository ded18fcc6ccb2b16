//go:build cluster

package installation

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
)

// Callers that the installation knows.
const (
	UserSubject     = "user-1"
	OperatorSubject = "operator"
)

// runTimeout bounds one run, on a machine that has other things to do.
const runTimeout = 3 * time.Minute

// User calls the public API of the control plane's pod of this moment: after that was
// restarted it takes another client.
func (i *Installation) User(t testing.TB) *apiclient.Client {
	t.Helper()
	return i.Client(t, UserSubject, 8080)
}

// Operator is the same for the operators' API.
func (i *Installation) Operator(t testing.TB) *apiclient.Client {
	t.Helper()
	return i.Client(t, OperatorSubject, 8081)
}

// Client calls a port of the control plane as a subject.
func (i *Installation) Client(t testing.TB, subject string, port int) *apiclient.Client {
	t.Helper()
	token := filepath.Join(i.folder, "token-"+rand.Text())
	i.Program(t, nil, "cofferdam", "token", "--data", i.Data, "--subject", subject, "--out", token)
	c, err := apiclient.New(fmt.Sprintf("http://%s:%d", i.Address(t, System, "controlplane"), port), token)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(token); err != nil { // it was read
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Talk is one conversation.
type Talk struct {
	Installation        *Installation
	User                *apiclient.Client
	Agent, Conversation string
	// Files go with each message.
	Files []apiclient.File

	binding string
}

// Talk begins a conversation of the user with an agent. Its sandbox is given back at the
// end of the test.
func (i *Installation) Talk(t testing.TB, agent string) *Talk {
	t.Helper()
	return i.TalkAs(t, i.User(t), agent)
}

// TalkAs is Talk with a client that the caller has.
func (i *Installation) TalkAs(t testing.TB, user *apiclient.Client, agent string) *Talk {
	t.Helper()
	c := &Talk{Installation: i, User: user, Agent: agent, Conversation: "c-" + rand.Text()}
	t.Cleanup(func() { c.Release(t) })
	return c
}

// Release clears the conversation, so that its sandbox is given back, and waits until
// its claim has gone.
func (c *Talk) Release(t testing.TB) {
	t.Helper()
	if c.binding == "" {
		return
	}
	i := c.Installation
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), kube.Patience)
	defer cancel()
	b, err := i.Operator(t).Binding(ctx, c.binding)
	if err != nil {
		t.Error(err)
		return
	}
	if err := c.clear(ctx, i.User(t), b.Epoch); err != nil {
		t.Error(err)
		return
	}
	c.binding = ""
	if b.Lease == nil {
		return
	}
	for {
		_, err := i.Cluster.Dynamic.Resource(kube.Claims).Namespace(Sandboxes).Get(ctx, b.Lease.ClaimName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if !sleep(ctx) {
			t.Errorf("the claim %s of a conversation that was cleared is there: %v", b.Lease.ClaimName, err)
			return
		}
	}
}

func (c *Talk) clear(ctx context.Context, user *apiclient.Client, epoch uint32) error {
	body, err := json.Marshal(map[string]any{"agent_id": c.Agent, "epoch": epoch})
	if err != nil {
		return err
	}
	a, err := user.Do(ctx, http.MethodPost, "/api/v1/conversations/"+c.Conversation+"/clear", "application/json", bytes.NewReader(body))
	if err := errors.Join(err, a.Err()); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return nil
}

// BindingID is the id of the conversation's binding, which it has from its first run on.
func (c *Talk) BindingID() string { return c.binding }

// Clear begins a new epoch of the conversation.
func (c *Talk) Clear(t testing.TB) {
	t.Helper()
	b, err := c.Installation.Operator(t).Binding(t.Context(), c.binding)
	if err == nil {
		err = c.clear(t.Context(), c.User, b.Epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Turn is a run that has ended.
type Turn struct {
	apiclient.Started

	Events []apiclient.Event
}

// Start asks for a run; a refusal is the error, an *apiclient.Error.
func (c *Talk) Start(ctx context.Context, message string) (apiclient.Started, error) {
	s, err := c.User.Start(ctx, apiclient.Start{AgentID: c.Agent, ConversationID: c.Conversation, Message: message, Files: c.Files})
	if err == nil {
		c.binding = s.BindingID
	}
	return s, err
}

// Begin starts a run and returns once it is committed.
func (c *Talk) Begin(t testing.TB, message string) apiclient.Started {
	t.Helper()
	s, err := c.Start(t.Context(), message)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return s
}

// Say runs a turn to its end, whatever that is.
func (c *Talk) Say(t testing.TB, message string) Turn {
	t.Helper()
	return c.End(t, c.Begin(t, message))
}

// Tell runs a turn that must finish.
func (c *Talk) Tell(t testing.TB, message string) Turn {
	t.Helper()
	r := c.Say(t, message)
	if r.Ending() != "run.finished" {
		t.Fatalf("did not finish: %s", r)
	}
	return r
}

// End follows a run to its end.
func (c *Talk) End(t testing.TB, s apiclient.Started) Turn {
	t.Helper()
	r, err := c.Follow(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Follow is End for a goroutine: it checks what holds of every log, one beginning, one
// end and nothing missing between them.
func (c *Talk) Follow(ctx context.Context, s apiclient.Started) (Turn, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	events, err := c.User.Follow(ctx, s.RunID)
	r := Turn{s, events}
	if err != nil {
		return r, fmt.Errorf("stream of %s after %d events: %w", s.RunID, len(events), err)
	}
	if len(events) == 0 {
		return r, fmt.Errorf("%s has no events", s.RunID)
	}
	for n, e := range events {
		if e.RunID != s.RunID || e.ConversationID != c.Conversation || e.Sequence != uint64(n) || e.Terminal() != (n == len(events)-1) {
			return r, fmt.Errorf("event %d of %d does not belong there: %s", n, len(events), e.Raw)
		}
	}
	return r, nil
}

// Sees waits until the log of a run has an event of a type.
func (c *Talk) Sees(t testing.TB, run apiclient.Started, typ string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	if err := c.User.Sees(ctx, run.RunID, typ); err != nil {
		t.Fatal(err)
	}
}

// Concluded waits until a run is, and gives its status.
func (c *Talk) Concluded(t testing.TB, run apiclient.Started) (status apiclient.Run) {
	t.Helper()
	Until(t, "conclusion of "+run.RunID, func() (_ bool, err error) {
		status, err = c.User.Run(t.Context(), run.RunID)
		return err == nil && status.State == "ended", err
	})
	return status
}

// Pending is what the conversation waits for.
func (c *Talk) Pending(t testing.TB) apiclient.InterruptState {
	t.Helper()
	s, err := c.User.InterruptState(t.Context(), c.Conversation, c.Agent)
	if err != nil {
		t.Fatal(err)
	}
	if s.Interrupt == nil {
		t.Fatal("the conversation waits for nothing")
	}
	return s
}

// Decide answers an interrupt with one decision for all its calls.
func (c *Talk) Decide(ctx context.Context, run apiclient.Started, s apiclient.InterruptState, decision string) (apiclient.Started, error) {
	resume := apiclient.Resume{InterruptID: s.Interrupt.InterruptID, Revision: s.Revision}
	for _, a := range s.Interrupt.ToolApprovals {
		resume.Tools = append(resume.Tools, apiclient.ToolDecision{ToolCallID: a.ToolCallID, Decision: decision})
	}
	return c.User.Resume(ctx, run.RunID, resume)
}

// Last is the terminal.
func (r Turn) Last() apiclient.Event { return r.Events[len(r.Events)-1] }

// Ending is what the terminal says, as its type and the code or reason that it has.
func (r Turn) Ending() string {
	var d struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(r.Last().Data, &d) // a terminal without either
	switch r.Last().Type {
	case "run.error", "run.cancelled":
		return r.Last().Type + " " + d.Code + d.Reason
	}
	return r.Last().Type
}

// RetryAfter is when to come again, in seconds, as an error says; 0 where it does not.
func (r Turn) RetryAfter() int {
	var d struct {
		Seconds int `json:"retry_after_seconds"`
	}
	_ = json.Unmarshal(r.Last().Data, &d) // it says nothing
	return d.Seconds
}

// Text is what the agent said.
func (r Turn) Text() string {
	var b strings.Builder
	for _, e := range r.Events {
		var d struct {
			Delta string `json:"delta"`
		}
		if e.Type == "text.delta" && json.Unmarshal(e.Data, &d) == nil {
			b.WriteString(d.Delta)
		}
	}
	return b.String()
}

// String is the end of the log, for people.
func (r Turn) String() string {
	var b strings.Builder
	for _, e := range r.Events[max(0, len(r.Events)-20):] {
		fmt.Fprintf(&b, "\n  %d %s %.300s", e.Sequence, e.Type, e.Data)
	}
	return b.String()
}

// sleep waits a little, and reports whether there is more time.
func sleep(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// Until is [kube.Eventually] for a condition.
func Until(t testing.TB, what string, holds func() (bool, error)) {
	t.Helper()
	kube.Eventually(t, what, func(context.Context) error {
		ok, err := holds()
		if err == nil && !ok {
			err = fmt.Errorf("not yet")
		}
		return err
	})
}
