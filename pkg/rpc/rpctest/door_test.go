package rpctest

import (
	"errors"
	"slices"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/rpc"
)

// What the table is for must make it fail.
func TestJudge(t *testing.T) {
	stale := fault.New(fault.StaleLease, "test")
	right, refused := row{}, row{code: fault.StaleLease}
	for name, c := range map[string]struct {
		door Door
		row  row
		seen seen
		ok   bool
	}{
		"all right":                     {Door{Changes: true}, right, seen{arrived: true, changed: true}, true},
		"all right, a read":             {Door{}, right, seen{arrived: true}, true},
		"all right, nothing seen":       {Door{Changes: true}, right, seen{arrived: true}, false},
		"all right, refused":            {Door{}, right, seen{arrived: true, err: stale}, false},
		"a read that writes":            {Door{}, right, seen{arrived: true, changed: true}, false},
		"stale":                         {Door{Changes: true}, refused, seen{arrived: true, err: stale, status: 409}, true},
		"stale, and written":            {Door{Changes: true}, refused, seen{arrived: true, err: stale, status: 409, changed: true}, false},
		"stale, and let in":             {Door{}, refused, seen{arrived: true}, false},
		"stale with another status":     {Door{}, refused, seen{arrived: true, err: stale, status: 400}, false},
		"stale stream":                  {Door{Streaming: true}, refused, seen{arrived: true, err: stale, status: 200}, true},
		"stale with another code":       {Door{}, refused, seen{arrived: true, err: fault.New(fault.Internal, "test"), status: 409}, false},
		"handshake refused":             {Door{}, row{handshake: true}, seen{err: errors.New("refused")}, true},
		"handshake not refused":         {Door{}, row{handshake: true}, seen{arrived: true}, false},
		"handshake answered":            {Door{}, row{handshake: true}, seen{arrived: true, err: stale}, false},
		"refused before it could be so": {Door{}, refused, seen{err: stale, status: 409}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if wrong := c.door.judge(c.row, c.seen); len(wrong) == 0 != c.ok {
				t.Errorf("wrong: %q", wrong)
			}
		})
	}
}

// The table has every row that the project asks of each procedure.
func TestRows(t *testing.T) {
	s := NewStand(t)
	rows, missing := Door{Audience: capability.ThreadState, Fence: rpc.RunFence}.rows(t, s)
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	for _, want := range []string{
		"no TLS identity", "wrong identity", "no token", "expired", "wrong audience", "wrong algorithm RS256", "alg none",
		"unknown key", "other sandbox's token", "wrong run", "lower generation", "unknown generation", "higher generation",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no row %q among %q", want, names)
		}
	}
	if names[len(names)-1] != "all right" {
		t.Errorf("the last row is %q", names[len(names)-1])
	}
	if len(missing) != 1 {
		t.Errorf("does not apply: %v", missing)
	}
	_, missing = Door{Caller: ServiceID("controlplane"), NoFenceReason: "a reason"}.rows(t, s)
	if len(missing) != 3 {
		t.Errorf("does not apply: %v", missing)
	}
}
