package linearizability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
	"cofferdam.dev/services/statefacade/internal/memory/secrets"
)

// stores are those of one process.
type stores struct {
	records bindingstore.Store
	memory  memorystore.Store
	secrets *secrets.Scanner
}

func openStores(ctx context.Context, location string) (*stores, error) {
	scanner, err := secrets.New()
	if err != nil {
		return nil, err
	}
	a := storeaddr.Address{Location: location}
	clients := mongodbstore.NewClients(nil)
	records, err := bindingstore.Open(ctx, a, clients)
	if err != nil {
		return nil, err
	}
	remembered, err := memorystore.Open(ctx, a, clients)
	if err != nil {
		return nil, errors.Join(err, records.Close())
	}
	return &stores{records, remembered, scanner}, nil
}

func (s *stores) close() error { return errors.Join(s.memory.Close(), s.records.Close()) }

func bindingID(n int) string { return fmt.Sprintf("hs_linearizability_%d", n) }

// insert makes the records of a history, all of one subject, whose memory they
// share.
func (s *stores) insert(ctx context.Context, bindings int) error {
	for n := range bindings {
		r := binding.Record{ID: bindingID(n), Epoch: 1, Identity: binding.Identity{Environment: "test", Subject: "subject", AgentID: "agent"}}
		if _, _, err := s.records.Insert(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Of a hundred calls to a store so many are late, and so many lose their request,
// or the answer after the write.
const (
	lateCalls    = 10
	lostRequests = 2
	lostReplies  = 4
	latest       = 3 * time.Millisecond
)

// line is what one client's calls go through.
type line struct {
	mu   sync.Mutex
	rand *rand.Rand
	// lost says that the answer to a write was lost since it was last asked.
	lost bool
}

// fate of a call, which may have to wait.
func (l *line) fate(op string) bindingtest.Fate {
	l.mu.Lock()
	n := l.rand.IntN(100)
	fate := bindingtest.Deliver
	switch {
	case n < lateCalls:
		l.mu.Unlock()
		l.wait(latest)
		return fate
	case n < lateCalls+lostRequests:
		fate = bindingtest.LoseRequest
	case n < lateCalls+lostRequests+lostReplies:
		fate = bindingtest.LoseReply
	}
	switch op {
	case "Load", "LoadRun", "LoadRow", "Rows", "Chunks", "Committed":
	default:
		l.lost = l.lost || fate == bindingtest.LoseReply
	}
	l.mu.Unlock()
	return fate
}

// wait for a while, at most as long as is said.
func (l *line) wait(most time.Duration) {
	l.mu.Lock()
	pause := time.NewTimer(time.Duration(l.rand.Int64N(int64(most))))
	l.mu.Unlock()
	<-pause.C
}

// answersLost tells, and forgets.
func (l *line) answersLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = false
	return lost
}

// lossyMemory is a memory store at the end of a line. unfenced leaves out the
// comparison of revisions, as a planted fault.
type lossyMemory struct {
	memory.Store
	line     *line
	unfenced bool
}

// Change implements memory.Store.
func (m lossyMemory) Change(ctx context.Context, c memory.Change, most int) (revision uint64, err error) {
	if m.unfenced {
		return m.overwrite(ctx, c, most)
	}
	fate := m.line.fate("Change")
	if fate == bindingtest.LoseRequest {
		return 0, bindingtest.ErrLost
	}
	revision, err = m.Store.Change(ctx, c, most)
	if fate == bindingtest.LoseReply {
		return 0, bindingtest.ErrLost
	}
	return revision, err
}

// overwrite stores over whatever stands.
func (m lossyMemory) overwrite(ctx context.Context, c memory.Change, most int) (uint64, error) {
	revision := c.Expected + 1
	for {
		r, err := m.Get(ctx, c.Namespace, c.Record.Key, c.Record.UpdatedAt)
		if err != nil && !errors.Is(err, memory.ErrNotFound) {
			return 0, err
		}
		c.Expected, c.Replaces = r.Revision, r.Kind
		if _, err := m.Store.Change(ctx, c, most); !errors.Is(err, memory.ErrRevision) {
			return revision, err
		}
	}
}
