package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
)

const (
	// writersVariable says how many writers there are; the figure of the project's
	// goals is 1000.
	writersVariable = "COFFERDAM_TEST_MEMORY_WRITERS"
	fewWriters      = 45
	// writersPerKey is how many there are at least, in all scopes; of many writers
	// there are more, because there are no more than 20 keys.
	writersPerKey = 15
	mostKeys      = 20
	// writersPerRun keeps a run below the number of effects that it may have open.
	writersPerRun = 20
	people        = 4
)

// crowd is many writers at once, who each add one line to a record.
type crowd struct {
	t       *testing.T
	stands  []*rpctest.Stand
	service *memory.Service

	mu sync.Mutex
	// added has the lines that were acknowledged, by whose record and key.
	added map[string][]string
	// foreign counts lines that were read in a record which they do not belong to.
	foreign int
	changes int
}

// writer is one of them.
type writer struct {
	id     int
	stand  *rpctest.Stand
	person int
	scope  memory.Scope
	key    string
}

func newCrowd(t *testing.T, writers int, store memory.Store) *crowd {
	t.Helper()
	c := &crowd{t: t, added: map[string][]string{}}
	o := open(t, rpctest.NewStand(t))
	o.memories.Store = store
	c.service = o.service(memory.Policy{
		SharedLearning: shared.SharedLearning, Approval: shared.Approval,
		Administrators: []memory.Administrators{{Organization: "org-1", Subjects: []string{"person-0", "person-1", "person-2", "person-3"}}},
	})
	for n := range (writers + writersPerRun - 1) / writersPerRun * people {
		c.stands = append(c.stands, o.stand.Another(t, func(id *binding.Identity) {
			id.Subject, id.ConversationID = fmt.Sprint("person-", n%people), fmt.Sprint("conversation-", n)
		}))
	}
	return c
}

// run lets all write at once and gives how many acknowledged lines are missing. All
// have read before the first one writes, so that nearly every one is overtaken, and
// again each time another one of its record was faster.
func (c *crowd) run(writers int) (lost int) {
	var wg, reading sync.WaitGroup
	reading.Add(writers)
	all := make([]writer, writers)
	keys := min(mostKeys, writers/writersPerKey)
	for n := range all {
		person := rand.IntN(people) //nolint:gosec // any will do
		all[n] = writer{
			id: n, person: person, stand: c.stands[n/writersPerRun*people+person], key: fmt.Sprint("key-", n%keys),
			scope: []memory.Scope{memory.ScopeUser, memory.ScopeAgent, memory.ScopeOrganization}[n/keys%3],
		}
		wg.Go(func() {
			content, revision, err := c.read(all[n])
			reading.Done()
			reading.Wait()
			if err != nil {
				c.t.Error(err)
				return
			}
			c.write(all[n], content, revision)
		})
	}
	wg.Wait()
	for _, w := range all {
		content, _, err := c.read(w)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, line := range c.added[w.owner()+w.key] {
			if !strings.Contains(content, line) {
				lost++
			}
		}
		c.added[w.owner()+w.key] = nil // each record is counted once
	}
	return lost
}

// owner is whose record it is; each line begins with it.
func (w writer) owner() string {
	if w.scope == memory.ScopeUser {
		return fmt.Sprintf("user-of-person-%d ", w.person)
	}
	return string(w.scope) + " "
}

func (c *crowd) caller(w writer) memory.Caller {
	e := w.stand.Envelope()
	e.Deadline = time.Now().Add(rpctest.RunTime / 2)
	return c.callerAs(w, e)
}

func (c *crowd) callerAs(w writer, e fence.Envelope) memory.Caller {
	return memory.Caller{Grant: w.stand.Grant(c.t, e), ID: rpctest.SandboxID(), Scopes: []string{string(w.scope)}}
}

// read gives a record and looks whether all of it belongs there.
func (c *crowd) read(w writer) (content string, revision uint64, err error) {
	r, err := c.service.Get(c.t.Context(), c.caller(w), w.scope, w.key)
	if fault.Is(err, fault.NotFound) {
		return "", 0, nil
	}
	for line := range strings.Lines(string(r.Content)) {
		if !strings.HasPrefix(line, w.owner()+w.key+" ") {
			c.mu.Lock()
			c.foreign++
			c.mu.Unlock()
		}
	}
	return string(r.Content), r.Revision, err
}

// write adds a line to what was read, and to what stands then where another writer
// was faster, however often.
func (c *crowd) write(w writer, content string, revision uint64) {
	for {
		err := c.put(w, content, revision)
		switch fault.CodeOf(err) {
		case "":
			return
		case fault.MemoryRevisionConflict, fault.Capacity, fault.DependencyUnavailable, fault.PersistenceFailed: // nothing was written
			content, revision, err = c.read(w)
		default:
		}
		if err != nil {
			c.t.Error(err)
			return
		}
	}
}

// put adds a line at a revision, and notes it if it is acknowledged.
func (c *crowd) put(w writer, content string, revision uint64) error {
	line := fmt.Sprintf("%s%s writer-%d\n", w.owner(), w.key, w.id)
	p := memory.Put{Scope: w.scope, Key: w.key, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte(content + line)}
	if revision > 0 {
		p.Expected = &revision
	}
	caller := c.caller(w)
	_, err := c.service.Put(c.t.Context(), caller, p)
	for fault.Is(err, fault.ToolOutcomeUnknown) { // the same request settles it
		_, err = c.service.Put(c.t.Context(), caller, p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	if err == nil {
		c.added[w.owner()+w.key] = append(c.added[w.owner()+w.key], line)
	}
	return err
}

func writers(t *testing.T) int {
	t.Helper()
	text := os.Getenv(writersVariable)
	if text == "" {
		return fewWriters
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

func sqliteMemory(t *testing.T) memory.Store {
	t.Helper()
	s, err := memorystore.OpenSQLite(t.Context(), t.TempDir()+"/state.db")
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func mongodbMemory(t *testing.T) memory.Store {
	t.Helper()
	s, err := memorystore.OpenMongoDB(t.Context(), mongodbstoretest.Open(t, mongodbstoretest.Server(t)))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// However many write the same keys of three scopes at once, no acknowledged
// change is lost, and nothing of one scope is read in another one.
func TestManyWriters(t *testing.T) {
	for name, open := range map[string]func(*testing.T) memory.Store{"SQLite": sqliteMemory, "MongoDB": mongodbMemory} {
		t.Run(name, func(t *testing.T) {
			n := writers(t)
			c := newCrowd(t, n, open(t))
			lost := c.run(n)
			t.Logf("%d writers, %d changes asked for, %d lost, %d lines in a record of another scope", n, c.changes, lost, c.foreign)
			if lost != 0 || c.foreign != 0 {
				t.Errorf("%d changes were lost, %d lines were read in a record of another scope", lost, c.foreign)
			}
		})
	}
}

// careless takes whatever revision stands for the expected one.
type careless struct{ memory.Store }

func (s careless) Change(ctx context.Context, c memory.Change, most int) (uint64, error) {
	for {
		r, err := s.Get(ctx, c.Namespace, c.Record.Key, time.Now())
		if err != nil && !errors.Is(err, memory.ErrNotFound) {
			return 0, err
		}
		c.Expected, c.Replaces = r.Revision, r.Kind
		revision, err := s.Store.Change(ctx, c, most)
		if !errors.Is(err, memory.ErrRevision) {
			return revision, err
		}
	}
}

// shapeless has one namespace for all.
type shapeless struct{ memory.Store }

func (s shapeless) Get(ctx context.Context, _, key string, now time.Time) (memory.Record, error) {
	return s.Store.Get(ctx, "all", key, now)
}

func (s shapeless) Change(ctx context.Context, c memory.Change, most int) (uint64, error) {
	c.Namespace = "all"
	return s.Store.Change(ctx, c, most)
}

// The check above finds what it is for.
func TestManyWritersFindsPlantedFaults(t *testing.T) {
	if newCrowd(t, fewWriters, careless{sqliteMemory(t)}).run(fewWriters) == 0 {
		t.Error("a store without revisions loses nothing")
	}
	c := newCrowd(t, fewWriters, shapeless{sqliteMemory(t)})
	if c.run(fewWriters); c.foreign == 0 {
		t.Error("a store without namespaces mixes nothing up")
	}
}
