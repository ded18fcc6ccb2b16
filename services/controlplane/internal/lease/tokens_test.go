package lease_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func twoTools(context.Context, []string) ([]worker.Tool, []string, error) {
	return []worker.Tool{{ID: "fs.read"}, {ID: "fs.list"}}, []string{"fs.gone"}, nil
}

// Each capability has exactly what its audience needs, for the sandbox that will
// hold it and the replica that drives the run.
func TestScopesAreExact(t *testing.T) {
	w := newWorld(t)
	w.agent.Tools = []string{"fs.*", "fs.gone"}
	var asked []string
	w.tools.list = func(ctx context.Context, patterns []string) ([]worker.Tool, []string, error) {
		asked = patterns
		return twoTools(ctx, patterns)
	}
	req := w.run(t)
	req.Handles = func(context.Context, fence.Envelope) ([]string, error) { return []string{"handle-1", "handle-2"}, nil }
	h := w.acquire(t, req)
	want := []minted{{
		env: req.Envelope, subject: identity.Sandbox(td, "instance-1").String(), owner: owner,
		scopes: []lease.Scope{
			{Audience: capability.HarnessWorker},
			{Audience: capability.ThreadState},
			{Audience: capability.ModelProxy, ModelAlias: "small"},
			{Audience: capability.Memory, Memory: []string{"user"}},
			{Audience: capability.ToolBroker, Tools: []string{"fs.read", "fs.list"}},
			{Audience: capability.FileBroker, Handles: []string{"handle-1", "handle-2"}},
		},
	}}
	if !reflect.DeepEqual(w.minter.asked, want) {
		t.Errorf("minted %+v\nwant %+v", w.minter.asked, want)
	}
	if !reflect.DeepEqual(asked, w.agent.Tools) {
		t.Errorf("asked for tools %v", asked)
	}
	b := w.workers.binds()[0]
	if h.Token.Audience != string(capability.HarnessWorker) || len(b.Tokens) != 5 || b.Tokens[4].Audience != string(capability.FileBroker) || len(b.Tools) != 2 {
		t.Errorf("token %v, bound with %v and %v", h.Token, b.Tokens, b.Tools)
	}
	for _, tok := range b.Tokens {
		if tok.Audience == string(capability.HarnessWorker) {
			t.Error("the worker's own capability is among its call tokens")
		}
	}
}

// The instance is committed before anything is minted for it.
func TestTheInstanceIsCommittedBeforeItsTokens(t *testing.T) {
	w := newWorld(t)
	w.minter.mint = func(ctx context.Context) error {
		r, err := w.store.Load(ctx, bindingID)
		if err == nil && r.Lease.InstanceUID != "instance-1" {
			t.Errorf("minted for %+v", r.Lease)
		}
		return err
	}
	w.acquire(t, w.run(t))
}

// A run without its tools is worth more than none.
func TestARunStartsWithoutTools(t *testing.T) {
	for name, list := range map[string]func(ctx context.Context, patterns []string) ([]worker.Tool, []string, error){
		"the broker is away": nil,
		"the broker is deaf": func(ctx context.Context, _ []string) ([]worker.Tool, []string, error) {
			<-ctx.Done()
			return nil, nil, fault.From(ctx.Err(), "test")
		},
		"none is available": func(context.Context, []string) ([]worker.Tool, []string, error) { return nil, []string{"fs.*"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.agent.Tools = []string{"fs.*"}
				w.tools.list = list
				began := time.Now()
				w.acquire(t, w.run(t))
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("waited %v for tools", took)
				}
				if b := w.workers.binds(); len(b) != 1 || len(b[0].Tools) > 0 {
					t.Errorf("bound with %+v", b)
				}
				for _, s := range w.minter.asked[0].scopes {
					if s.Audience == capability.ToolBroker {
						t.Error("a capability for tools without tools")
					}
				}
			})
		})
	}
}

func TestAnAgentWithoutToolsAsksForNone(t *testing.T) {
	w := newWorld(t)
	w.tools.list = func(context.Context, []string) ([]worker.Tool, []string, error) {
		t.Error("asked")
		return nil, nil, nil
	}
	w.acquire(t, w.run(t))
}

// The capability for cancel, interrupt and shutdown names no run and no replica.
func TestLifecycleHasNoRun(t *testing.T) {
	w := newWorld(t)
	env := w.run(t).Envelope
	tok, err := w.Lifecycle(t.Context(), env, "instance-9")
	if err != nil || tok.Audience != string(capability.HarnessWorker) {
		t.Fatalf("%v, %v", tok, err)
	}
	env.RunID = ""
	want := []minted{{env: env, subject: identity.Sandbox(td, "instance-9").String(), scopes: []lease.Scope{{Audience: capability.HarnessWorker}}}}
	if !reflect.DeepEqual(w.minter.asked, want) {
		t.Errorf("minted %+v\nwant %+v", w.minter.asked, want)
	}
}

// A token for one service never goes to another, whatever the capability service
// answers.
func TestOtherTokensThanThoseAskedFor(t *testing.T) {
	for name, change := range map[string]func([]worker.Token) []worker.Token{
		"none":       func([]worker.Token) []worker.Token { return nil },
		"too few":    func(all []worker.Token) []worker.Token { return all[:len(all)-1] },
		"too many":   func(all []worker.Token) []worker.Token { return append(all, all[0]) },
		"another":    func(all []worker.Token) []worker.Token { all[0].Audience = "memory"; return all },
		"an empty":   func(all []worker.Token) []worker.Token { all[0].Token = ""; return all },
		"without id": func(all []worker.Token) []worker.Token { all[0].ID = ""; return all },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.minter.change = change
			req := w.run(t)
			w.refused(t, req, fault.Internal)
			if _, err := w.Lifecycle(t.Context(), req.Envelope, "instance-1"); !fault.Is(err, fault.Internal) {
				t.Errorf("lifecycle: %v", err)
			}
			if len(w.workers.binds()) > 0 {
				t.Error("a worker was bound with them")
			}
		})
	}
}

func TestADeafCapabilityServiceIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.minter.mint = func(ctx context.Context) error { <-ctx.Done(); return fault.From(ctx.Err(), "test") }
		began := time.Now()
		w.refused(t, w.run(t), fault.DependencyUnavailable)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// Whatever prints what is held prints no token.
func TestTokensAreNotPrinted(t *testing.T) {
	const secret = "eyJhbGciOi.secret" //nolint:gosec // opens nothing
	h := lease.Held{Token: worker.Token{Audience: "memory", Token: secret}, CallTokens: []worker.Token{{Token: secret}}}
	var out strings.Builder
	slog.New(slog.NewTextHandler(&out, nil)).Info("held", "token", h.Token, "held", h)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		out.WriteString(fmt.Sprintf(verb, h.Token) + fmt.Sprintf(verb, h.CallTokens))
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("printed: %s", out.String())
	}
}

// What a worker is only told of must not rest on the worker.
func TestApprovalsAndDenialsStandInTheCapability(t *testing.T) {
	w := newWorld(t)
	w.tools.list = func(ctx context.Context, patterns []string) ([]worker.Tool, []string, error) {
		tools, _, err := twoTools(ctx, patterns)
		return append(tools, worker.Tool{ID: "fs.write", OfferedName: "fs_write", ApprovalRequired: true}, worker.Tool{ID: "fs.delete", OfferedName: "fs_delete"}), nil, err
	}
	req := w.run(t)
	req.Agent.ApproveTools = []string{"fs.list"}
	req.Agent.Middleware = []agents.Middleware{{Name: "tool_deny", Options: map[string]any{"tool_ids": []any{"fs.delete"}}}}
	w.acquire(t, req)
	for _, s := range w.minter.asked[0].scopes {
		want := lease.Scope{Audience: capability.ToolBroker, Tools: []string{"fs.read", "fs.list", "fs.write"}, ApproveTools: []string{"fs.list", "fs.write"}}
		if s.Audience == capability.ToolBroker && !reflect.DeepEqual(s, want) {
			t.Errorf("minted %+v", s)
		}
	}
}
