package facadeclient

import (
	"context"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestCall(t *testing.T) {
	c := newClient(t)
	res, err := c.Tools.Call(t.Context(), call)
	must(t, err)
	if string(res.Result) != `{"content":[]}` || !res.IsError || res.Ref != "obj-1" {
		t.Errorf("got %+v", res)
	}
	if len(c.acted) != 1 || c.acted[0] != `call-1 fs.read {"path":"a"}` {
		t.Errorf("the tool saw %q", c.acted)
	}
	rows := c.stand.Rows(t)
	if len(rows) != 1 || !strings.HasPrefix(rows[0].Key, "call-1") {
		t.Errorf("the ledger has %+v", rows)
	}
}

// What a tool asks is passed on as the broker gave it, and its answer as it came.
func TestAToolThatAsks(t *testing.T) {
	c := newClient(t)
	res, err := c.Tools.Call(t.Context(), harness.ToolCall{CallID: "call-1", ToolID: asksTool, Arguments: []byte(`{}`)})
	must(t, err)
	if res.Asks == nil {
		t.Fatalf("got %+v", res)
	}
	if body, err := event.InterruptBody(*res.Asks); err != nil || string(body) != askedByTool {
		t.Errorf("asked %s (%v)", body, err)
	}
	res, err = c.Tools.Call(t.Context(), harness.ToolCall{
		CallID: "input_1", ToolID: asksTool, Arguments: []byte(`{}`),
		Answer: &harness.ToolAnswer{RunID: "run-1", CallID: "call-1", Form: []byte(`{"a":"b"}`)},
	})
	must(t, err)
	if got := c.answers[1]; res.Asks != nil || got.GetRunId() != "run-1" || got.GetToolCallId() != "call-1" || string(got.GetForm()) != `{"a":"b"}` || got.GetDismissed() {
		t.Errorf("got %+v, the broker %v", res, got)
	}
}

// A lost answer is asked for again under the same key: the tool acts once (the
// failure of a client that ran it again).
func TestCallLosesItsAnswer(t *testing.T) {
	c := newClient(t)
	twice := first(2)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return twice(p, toolbrokerv1connect.ToolBrokerServiceCallToolProcedure) }
	})
	res, err := c.Tools.Call(t.Context(), call)
	must(t, err)
	if string(res.Result) != `{"content":[]}` || len(c.acted) != 1 || c.count("CallTool") != 3 {
		t.Errorf("got %s; the tool acted %d times; %d requests", res.Result, len(c.acted), c.count("CallTool"))
	}
}

// What stays unknown is said to be, so that nobody repeats it under another key.
func TestCallStaysUnknown(t *testing.T) {
	c := newClient(t)
	c.arm(func(b *brokers) { b.lose = func(string) bool { return true } })
	_, err := c.Tools.Call(t.Context(), call)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	if len(c.acted) != 1 {
		t.Errorf("the tool acted %d times", len(c.acted))
	}
}

// A broker that was never reached has done nothing, and neither has one that says
// so.
func TestCallDidNothing(t *testing.T) {
	t.Run("not reached", func(t *testing.T) {
		c := newClient(t)
		ep := c.endpoint("brokers")
		ep.Address = "https://127.0.0.1:1"
		_, err := c.facades(t, ep, c.tokens()).Tools.Call(t.Context(), call)
		wantCode(t, err, fault.DependencyUnavailable)
	})
	t.Run("it says so", func(t *testing.T) {
		c := newClient(t)
		c.arm(func(b *brokers) {
			b.refuse = func(string) error { return fault.New(fault.DependencyUnavailable, "test") }
		})
		_, err := c.Tools.Call(t.Context(), call)
		wantCode(t, err, fault.DependencyUnavailable)
		if c.count("CallTool") != attempts {
			t.Errorf("%d requests", c.count("CallTool"))
		}
	})
	t.Run("not sure of an earlier attempt", func(t *testing.T) {
		c := newClient(t)
		once := first(1)
		c.arm(func(b *brokers) {
			b.lose = func(p string) bool { return once(p, toolbrokerv1connect.ToolBrokerServiceCallToolProcedure) }
			n := 0
			b.refuse = func(string) error {
				if n++; n == 1 {
					return nil
				}
				return fault.New(fault.DependencyUnavailable, "test")
			}
		})
		_, err := c.Tools.Call(t.Context(), call)
		wantCode(t, err, fault.ToolOutcomeUnknown)
	})
}

// An answer is an answer: it is not taken for a lost connection.
func TestCallIsRefused(t *testing.T) {
	for _, code := range []fault.Code{
		fault.ToolDenied, fault.ToolNotAllowed, fault.ToolArgumentsInvalid, fault.ToolUnavailable, fault.ToolOutcomeUnknown, fault.DeadlineExceeded, fault.Capacity,
	} {
		t.Run(string(code), func(t *testing.T) {
			c := newClient(t)
			c.arm(func(b *brokers) {
				b.refuse = func(string) error { return fault.New(code, "test", fault.Detail("path: required")) }
			})
			_, err := c.Tools.Call(t.Context(), call)
			wantCode(t, err, code)
			if c.count("CallTool") != 1 || len(c.acted) != 0 || !strings.Contains(fault.From(err, "").Detail(), "path") {
				t.Errorf("%d requests; %v", c.count("CallTool"), err)
			}
		})
	}
}

// A broker that is being restarted cancels its requests; the run goes on.
func TestCallOfABrokerThatIsRestarted(t *testing.T) {
	c := newClient(t)
	once := true
	c.arm(func(b *brokers) {
		b.refuse = func(string) error {
			if once {
				once = false
				return fault.New(fault.Cancelled, "test")
			}
			return nil
		}
	})
	_, err := c.Tools.Call(t.Context(), call)
	must(t, err)
}

// After a replacement nothing that this worker asks for happens.
func TestCallOfAReplacedLease(t *testing.T) {
	c := newClient(t)
	c.stand.Replace(t)
	_, err := c.Tools.Call(t.Context(), call)
	wantCode(t, err, fault.StaleLease)
	wantCode(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")), fault.StaleLease)
	_, err = c.Thread.Load(t.Context(), testCodec)
	wantCode(t, err, fault.StaleLease)
	_, err = c.Files.Read(t.Context(), harness.File{Handle: "handle-1"}, 10)
	wantCode(t, err, fault.StaleLease)
	if len(c.acted) != 0 || len(c.requests) != 0 || c.point.committed {
		t.Errorf("%q reached a handler", c.requests)
	}
}

// A cancel ends a call that is under way.
func TestCallIsCancelled(t *testing.T) {
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.arm(func(b *brokers) {
		b.refuse = func(string) error { cancel(); return fault.New(fault.DependencyUnavailable, "test") }
	})
	_, err := c.Tools.Call(ctx, call)
	wantCode(t, err, fault.Cancelled)
	if c.count("CallTool") != 1 {
		t.Errorf("%d requests", c.count("CallTool"))
	}
}

// What the run has no capability for is not even asked.
func TestNoCapability(t *testing.T) {
	c := newClient(t)
	f := c.facades(t, c.endpoint("brokers"), nil)
	_, err := f.Tools.Call(t.Context(), call)
	wantCode(t, err, fault.CapabilityMissing)
	_, err = f.Thread.Load(t.Context(), testCodec)
	wantCode(t, err, fault.CapabilityMissing)
	wantCode(t, f.Thread.Commit(t.Context(), testCodec, 0, nil), fault.CapabilityMissing)
	_, err = f.Files.Read(t.Context(), harness.File{Handle: "handle-1"}, 10)
	wantCode(t, err, fault.CapabilityMissing)
	if len(c.requests) != 0 {
		t.Errorf("%q reached a handler", c.requests)
	}
}

// Whoever answers at the address has to be the identity that bind named; to
// nobody else anything is said.
func TestAnotherIdentityAnswers(t *testing.T) {
	c := newClient(t)
	for _, id := range []spiffeid.ID{rpctest.ServiceID("toolbroker"), rpctest.SandboxID()} {
		t.Run(id.Path(), func(t *testing.T) {
			ep := c.endpoint("brokers")
			ep.ID = id
			_, err := c.facades(t, ep, c.tokens()).Tools.Call(t.Context(), call)
			wantCode(t, err, fault.DependencyUnavailable)
			if c.count("CallTool") != 0 {
				t.Error("the request arrived")
			}
		})
	}
}

// The answer was lost, and then the door closed: what the tool did meanwhile is
// still unknown, and nobody may call it again under another key.
func TestARefusalAfterALostAnswerSettlesNothing(t *testing.T) {
	c := newClient(t)
	once := first(1)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return once(p, toolbrokerv1connect.ToolBrokerServiceCallToolProcedure) }
		b.refuse = func(string) error {
			if len(c.acted) == 0 {
				return nil
			}
			return fault.New(fault.ToolDenied, "test")
		}
	})
	_, err := c.Tools.Call(t.Context(), call)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	if len(c.acted) != 1 {
		t.Errorf("the tool acted %d times", len(c.acted))
	}
}
