package rpctest

import (
	"math"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
)

// row is one way to knock.
type row struct {
	name string
	// how the connection is made
	plain     bool // without TLS
	anonymous bool // TLS without a certificate
	foreign   bool // a certificate of an authority that nobody here trusts
	as        spiffeid.ID
	// handshake says that the connection is refused and no handler sees anything.
	handshake bool
	token     string
	envelope  fence.Envelope
	// code of the refusal; empty for success.
	code fault.Code
}

func (r row) allowed() bool { return !r.handshake && r.code == "" }

// rows of the table, the one that is all right last, and those that do not apply
// with the reason.
func (d Door) rows(t *testing.T, s *Stand) (rows []row, missing map[string]string) {
	t.Helper()
	all := d.identityRows(s)
	missing = map[string]string{}
	if len(d.Others) == 0 {
		missing["wrong identity for this procedure"] = "whoever the listener lets in may call this procedure"
	}
	if d.Audience == "" {
		missing["every row of a token"] = "the caller acts as itself and presents no capability"
	} else {
		all = append(all, d.tokenRows(s)...)
	}
	if d.Fence == rpc.NoFence {
		if d.NoFenceReason == "" {
			t.Fatal("a Door without a fence needs a NoFenceReason")
		}
		missing["every row of the fence"] = d.NoFenceReason
	} else {
		all = append(all, d.fenceRows(s)...)
		if d.Fence == rpc.LeaseFence {
			missing["wrong run"] = "the request concerns the lease and no run"
		}
	}
	all = append(all, d.right(s, "all right", ""))

	names := make([]string, 0, len(all))
	for _, r := range all {
		names = append(names, r.name)
		if reason, ok := d.reasonFor(r.name); ok {
			missing[r.name] = reason
			continue
		}
		rows = append(rows, r)
	}
	if bad := d.unknownReasons(names); len(bad) > 0 {
		t.Fatalf("NotApplicable names no row, or has no reason: %q", bad)
	}
	return rows, missing
}

// right is a row that differs from the one that is all right in nothing yet.
func (d Door) right(s *Stand, name string, code fault.Code) row {
	e := s.Envelope()
	return row{name: name, as: d.caller(), token: d.token(s, e), envelope: e, code: code}
}

func (d Door) identityRows(s *Stand) []row {
	change := func(name string, f func(*row)) row {
		r := d.right(s, name, "")
		r.handshake = true
		f(&r)
		return r
	}
	rows := []row{
		change("no TLS", func(r *row) { r.plain = true }),
		change("no TLS identity", func(r *row) { r.anonymous = true }),
		change("wrong identity", func(r *row) { r.as = ServiceID("stranger") }),
		change("right identity of an unknown authority", func(r *row) { r.foreign = true }),
	}
	for _, id := range d.Others {
		r := d.right(s, "wrong identity for this procedure: "+id.Path(), fault.CallerNotAllowed)
		r.as = id
		rows = append(rows, r)
	}
	return rows
}

// tokenRows present the right envelope with a token that is wrong.
func (d Door) tokenRows(s *Stand) []row {
	e := s.Envelope()
	var rows []row
	for _, b := range s.Minter.Broken(d.claims(e)) {
		name := b.Name
		if name == "wrong run" {
			name = "other run's token"
		}
		rows = append(rows, row{name: name, as: d.caller(), token: b.Token, envelope: e, code: b.Code})
	}
	return rows
}

// fenceRows present a token and an envelope that agree with each other, and not
// with what is committed.
func (d Door) fenceRows(s *Stand) []row {
	stale := func(name string, f func(*fence.Envelope)) row {
		e := s.Envelope()
		f(&e)
		return row{name: name, as: d.caller(), token: d.token(s, e), envelope: e, code: fault.StaleLease}
	}
	rows := []row{
		stale("lower generation", func(e *fence.Envelope) { e.Generation-- }),
		stale("higher generation", func(e *fence.Envelope) { e.Generation++ }),
		stale("unknown generation", func(e *fence.Envelope) { e.Generation = math.MaxUint32 }),
		stale("lower epoch", func(e *fence.Envelope) { e.Epoch-- }),
		stale("higher epoch", func(e *fence.Envelope) { e.Epoch++ }),
		stale("unknown binding", func(e *fence.Envelope) { e.BindingID = "hs_nobody_knows_this_one" }),
	}
	if d.Fence == rpc.RunFence || d.Fence == rpc.AnyFence {
		rows = append(rows, stale("wrong run", func(e *fence.Envelope) { e.RunID = "run_another" }))
	}
	late := d.right(s, "deadline has passed", fault.DeadlineExceeded)
	late.envelope.Deadline = time.Now().Add(-time.Second)
	return append(rows, late)
}
