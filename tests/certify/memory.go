package certify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"cofferdam.dev/pkg/capability"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/tests/internal/impostor"
)

// What the state facade says of a change of memory.
const (
	conflict = "memory_revision_conflict"
	denied   = "memory_scope_denied"
	absent   = "not_found"
)

// memories lets three conversations of one user share what is remembered: two of one
// agent, and one of another.
func memories(ctx context.Context, w *world, l *ledger) {
	const name = "memory of a user is that of one agent's conversations, shared scopes are for those that may have them, and a change names the revision that it replaces"
	if os.Geteuid() != 0 {
		l.notRun(name, "capabilities are taken from a worker's memory: run it as root")
		return
	}
	var all []guest
	var err error
	for _, agent := range []string{plain, plain, careful} {
		g, failed := w.guestOf(ctx, agent)
		all, err = append(all, g), errors.Join(err, failed)
	}
	defer func() { l.holds("the runs that were used can be cancelled", w.leave(ctx, all...)) }()
	var seen []recalled
	if err == nil {
		seen, err = w.remember(ctx, all[0], all[1], all[2])
	}
	if err == nil {
		err = judgeMemory(seen)
	}
	l.figure("memory_calls", float64(len(seen)))
	l.holds(name, err)
}

// recalled is a call of memory, what came of it and what should.
type recalled struct{ What, Said, Want string }

// remember plays the calls, in the order in which they are written here.
func (w *world) remember(ctx context.Context, one, same, other guest) (seen []recalled, err error) {
	key := "certify-" + strings.ToLower(rand.Text())
	of := map[string]guest{"one": one, "another conversation of the agent": same, "another agent": other}
	impostors := map[string]*impostor.Impostor{}
	defer func() {
		for _, i := range impostors {
			err = errors.Join(err, i.Close())
		}
	}()
	for who, g := range of {
		i, err := g.Start(ctx, g.User, nil)
		if err != nil {
			return nil, err
		}
		impostors[who] = i
	}
	at := func(revision uint64) *uint64 { return &revision }
	const user, agent, organization = memoryv1.Scope_SCOPE_USER, memoryv1.Scope_SCOPE_AGENT, memoryv1.Scope_SCOPE_ORGANIZATION
	for _, c := range []struct {
		who, call string
		scope     memoryv1.Scope
		expected  *uint64
		want      string
	}{
		{"one", "get", user, nil, absent},
		{"one", "put", user, nil, impostor.Granted},
		{"one", "get", user, nil, impostor.Granted},
		{"another conversation of the agent", "get", user, nil, impostor.Granted},
		{"another agent", "get", user, nil, absent},
		{"another conversation of the agent", "put", user, nil, conflict},
		{"another conversation of the agent", "put", user, at(1), impostor.Granted},
		{"one", "put", user, at(1), conflict},
		{"one", "delete", user, at(1), conflict},
		{"one", "put", agent, nil, denied},
		{"one", "put", organization, nil, denied},
		{"one", "get", agent, nil, denied},
		{"one", "delete", user, at(2), impostor.Granted},
		{"another conversation of the agent", "get", user, nil, absent},
	} {
		g := of[c.who]
		call := impostor.Call{
			What: "statefacade " + c.call, Token: g.Tokens[capability.Memory], Envelope: g.Envelope,
			Record: &impostor.Record{Scope: c.scope, Key: key, Content: "what was learned", Expected: c.expected},
		}
		call.Envelope.IdempotencyKey = "key-" + rand.Text()
		said, err := impostors[c.who].Make(call)
		if err != nil {
			return seen, err
		}
		revision := "none"
		if c.expected != nil {
			revision = fmt.Sprint(*c.expected)
		}
		seen = append(seen, recalled{fmt.Sprintf("%s: %s in %s at revision %s", c.who, c.call, c.scope, revision), said[0], c.want})
	}
	return seen, nil
}

// judgeMemory sees that each call came to what it should, and that there were some of
// each kind.
func judgeMemory(seen []recalled) error {
	var errs []error
	kinds := map[string]int{}
	for _, r := range seen {
		kinds[r.Want]++
		if r.Said != r.Want {
			errs = append(errs, fmt.Errorf("%s came to %s, want %s", r.What, r.Said, r.Want))
		}
	}
	for _, kind := range []string{impostor.Granted, absent, conflict, denied} {
		if kinds[kind] == 0 {
			errs = append(errs, fmt.Errorf("no call should come to %s: nothing is shown", kind))
		}
	}
	return errors.Join(errs...)
}
