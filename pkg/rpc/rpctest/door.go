package rpctest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
)

// callTimeout bounds one request of the table.
const callTimeout = 20 * time.Second

// Door is one procedure, with what it takes to be let in.
type Door struct {
	// Procedure names the tests.
	Procedure string
	// Open builds the service; it is called once.
	Open func(t *testing.T, s *Stand) Service
	// Call makes one request with this envelope. The capability travels with ctx
	// (rpc.WithToken) and stands in c.Token for plain routes. The error of a
	// refusal is a fault.
	Call func(ctx context.Context, c *Client, e fence.Envelope) error
	// Caller may call; zero is the sandbox of the lease.
	Caller spiffeid.ID
	// Others may call the service and not this procedure.
	Others []spiffeid.ID
	// Audience of the capability; empty where the caller acts as itself.
	Audience capability.Audience
	// Subject of the capability; zero is Caller.
	Subject spiffeid.ID
	// Scope adds to the claims what the request needs, such as its handle.
	Scope func(*capability.Claims)
	// Fence of the procedure's policy.
	Fence rpc.FenceMode
	// NoFenceReason says why there is none; required with rpc.NoFence. It stands
	// beside the rows of the fence, which then do not apply.
	NoFenceReason string
	// Streaming procedures have the HTTP status 200 also for an error.
	Streaming bool
	// Changes says that the request that is all right writes something.
	Changes bool
	// NotApplicable has reasons for further rows that do not apply, by name.
	NotApplicable map[string]string
}

// Run runs the table.
func (d Door) Run(t *testing.T) {
	t.Helper()
	t.Run(d.Procedure, func(t *testing.T) {
		s := NewStand(t)
		h := s.host(t, d.Open)
		rows, missing := d.rows(t, s)
		for name, reason := range missing {
			t.Logf("does not apply: %q: %s", name, reason)
		}
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) { d.try(t, h, r) })
		}
	})
}

// Race replaces the lease between the admission of a right request and its
// first write: it is stale_lease, the record and the ledger are what the
// replacement made of them, and the service keeps what it kept before.
func (d Door) Race(t *testing.T) {
	t.Helper()
	t.Run(d.Procedure, func(t *testing.T) {
		s := NewStand(t)
		h := s.host(t, d.Open)
		arm := h.service.BeforeWrite
		if arm == nil {
			arm = s.Backend.BeforeWrite
		}
		kept, replaced := h.kept(t), ""
		arm(func() {
			s.Replace(t)
			replaced = s.state(t)
		})
		e := s.Envelope()
		err := d.call(t, h, row{as: d.caller(), token: d.token(s, e), envelope: e})
		if replaced == "" {
			t.Fatalf("the request wrote nothing, so nothing was raced; it ended with %v", err)
		}
		if !fault.Is(err, fault.StaleLease) {
			t.Errorf("got %v, want stale_lease", err)
		}
		if got := s.state(t); got != replaced {
			t.Errorf("the record was written after the lease was replaced:\nbefore %s\nafter  %s", replaced, got)
		}
		if got := h.kept(t); got != kept {
			t.Errorf("something is kept for a lease that was replaced:\nbefore %s\nafter  %s", kept, got)
		}
	})
}

// try makes the request of one row and looks at what it did.
func (d Door) try(t *testing.T, h *host, r row) {
	t.Helper()
	before, reached := h.state(t), h.reached.Load()
	err := d.call(t, h, r)
	after := h.state(t)
	for _, wrong := range d.judge(r, seen{
		err: err, arrived: h.reached.Load() != reached, status: int(h.status.Load()), changed: after != before,
	}) {
		t.Error(wrong)
	}
	if t.Failed() && after != before {
		t.Logf("before %s\nafter  %s", before, after)
	}
}

// seen is what a request did.
type seen struct {
	err     error
	arrived bool // a handler saw it
	status  int  // of the HTTP answer
	changed bool // something that is compared
}

// judge lists what is wrong about it.
func (d Door) judge(r row, s seen) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	switch {
	case r.handshake:
		if s.err == nil {
			say("the request was answered")
		}
		if s.arrived {
			say("a handler saw the request; it answered %v", s.err)
		}
	case !s.arrived:
		say("the request did not arrive: %v", s.err)
	case fault.CodeOf(s.err) != r.code:
		say("got %v, want code %q", s.err, r.code)
	case r.code == fault.StaleLease && !d.Streaming && s.status != fault.StaleLease.HTTPStatus():
		say("the HTTP status of stale_lease is %d", s.status)
	}
	switch allowed := r.allowed() && d.Changes; {
	case allowed && !s.changed:
		say("nothing that is compared was changed, so the other rows compare nothing")
	case !allowed && s.changed:
		say("something was written")
	}
	return wrong
}

func (d Door) call(t *testing.T, h *host, r row) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	c := h.dial(t, r)
	if c.Token != "" {
		ctx = rpc.WithToken(ctx, c.Token)
	}
	return d.Call(ctx, c, r.envelope)
}

func (d Door) caller() spiffeid.ID {
	if d.Caller.IsZero() {
		return SandboxID()
	}
	return d.Caller
}

func (d Door) claims(e fence.Envelope) capability.Claims {
	subject := d.Subject
	if subject.IsZero() {
		subject = d.caller()
	}
	c := capability.Claims{
		Audience: d.Audience, Subject: subject,
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	}
	if d.Scope != nil {
		d.Scope(&c)
	}
	return c
}

// token that fits the envelope; empty where the caller acts as itself.
func (d Door) token(s *Stand, e fence.Envelope) string {
	if d.Audience == "" {
		return ""
	}
	return s.Minter.Mint(d.claims(e))
}

func (d Door) reasonFor(name string) (string, bool) {
	reason, ok := d.NotApplicable[name]
	return reason, ok
}

// unknownReasons finds reasons that are for no row, or empty.
func (d Door) unknownReasons(names []string) []string {
	var out []string
	for name, reason := range d.NotApplicable {
		if reason == "" || !slices.Contains(names, name) {
			out = append(out, name)
		}
	}
	return out
}
