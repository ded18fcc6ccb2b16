package rpc_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/statefacade/internal/memory"
)

func isNoTable(err error) bool { return strings.Contains(err.Error(), "no such table") }

func (s *session) getAs(t *testing.T, e fence.Envelope, key string) (*memoryv1.Record, error) {
	t.Helper()
	res, err := s.memory.Get(s.ctx(t, e), &memoryv1.GetRequest{Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: key})
	return res.GetRecord(), err
}

func (s *session) wantMemory(t *testing.T, key string, revision uint64, content string) {
	t.Helper()
	r, err := s.getAs(t, s.stand.Envelope(), key)
	sum := sha256.Sum256([]byte(content))
	if err != nil || r.GetRevision() != revision || string(r.GetContent()) != content || string(r.GetSha256()) != string(sum[:]) {
		t.Errorf("memory is %v, %v; want %d %q", r, err, revision, content)
	}
}

func (s *session) put(t *testing.T, key, content string, expected *uint64) (*memoryv1.PutResponse, error) {
	t.Helper()
	e := s.stand.Envelope()
	return s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), key, content, expected))
}

func TestMemoryRevisions(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.getAs(t, s.stand.Envelope(), "key")
	wantCode(t, err, fault.NotFound)

	res, err := s.put(t, "key", "first", nil)
	if err != nil || res.GetRevision() != 1 || res.GetReplayed() {
		t.Fatalf("got %v, %v", res, err)
	}
	s.wantMemory(t, "key", 1, "first")
	_, err = s.put(t, "key", "must not exist", nil)
	wantCode(t, err, fault.MemoryRevisionConflict)
	res, err = s.put(t, "key", "second", new(uint64(1)))
	if err != nil || res.GetRevision() != 2 {
		t.Fatalf("got %v, %v", res, err)
	}
	for _, expected := range []uint64{1, 3} {
		_, err = s.put(t, "key", "third", &expected)
		wantCode(t, err, fault.MemoryRevisionConflict)
	}
	s.wantMemory(t, "key", 2, "second")
}

// A put is an admitted effect: once for its key, whatever its outcome was.
func TestPutHappensOnceForItsKey(t *testing.T) {
	s := newSession(t, capability.Memory)
	e := s.stand.Envelope()
	first, err := s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "content", nil))
	must(t, err)
	_, err = s.put(t, "key", "later", new(first.GetRevision()))
	must(t, err)
	again, err := s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "content", nil))
	if err != nil || !again.GetReplayed() || again.GetRevision() != first.GetRevision() {
		t.Errorf("got %v, %v", again, err)
	}
	_, err = s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "other content", nil))
	wantCode(t, err, fault.IdempotencyConflict)
	s.wantMemory(t, "key", 2, "later")

	refused := s.stand.Envelope()
	for range 2 { // the refusal is the outcome of its key as well
		_, err = s.memory.Put(s.ctx(t, refused), putRequest(refused.Proto(), "key", "third", new(uint64(7))))
		wantCode(t, err, fault.MemoryRevisionConflict)
	}
	for _, row := range s.stand.Rows(t) {
		if row.Kind != "memory.put" || row.State != binding.RowConcluded {
			t.Errorf("row is %+v", row)
		}
	}
	if n := len(s.stand.Rows(t)); n != 3 {
		t.Errorf("the ledger has %d rows, want 3", n)
	}
}

func TestPutWhoseOutcomeIsUnknownIsSettledByTheSameRequest(t *testing.T) {
	s := newSession(t, capability.Memory)
	e := s.stand.Envelope()
	s.memories.changeError = errLost
	_, err := s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "content", nil))
	wantCode(t, err, fault.ToolOutcomeUnknown)
	res, err := s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "content", nil))
	if err != nil || res.GetRevision() != 1 {
		t.Errorf("got %v, %v", res, err)
	}
	s.wantMemory(t, "key", 1, "content")
}

func TestPutAfterTheEndIsDecided(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "shutdown"})
	must(t, err)
	before := s.state(t)
	_, err = s.put(t, "key", "content", nil)
	wantCode(t, err, fault.Cancelled)
	if s.state(t) != before {
		t.Error("it was stored")
	}
}

func TestPutOfWhatIsNoMemory(t *testing.T) {
	s := newSession(t, capability.Memory)
	before := s.state(t)
	for name, change := range map[string]func(*memoryv1.PutRequest){
		"empty":               func(r *memoryv1.PutRequest) { r.Content = nil },
		"too large":           func(r *memoryv1.PutRequest) { r.Content = make([]byte, 64<<10+1) },
		"NUL":                 func(r *memoryv1.PutRequest) { r.Content = []byte("a\x00b") },
		"not UTF-8":           func(r *memoryv1.PutRequest) { r.Content = []byte("\xff") },
		"not JSON":            func(r *memoryv1.PutRequest) { r.ContentType, r.Content = "application/json", []byte("{") },
		"other content type":  func(r *memoryv1.PutRequest) { r.ContentType = "text/html" },
		"path for a key":      func(r *memoryv1.PutRequest) { r.Key = "../key" },
		"no key":              func(r *memoryv1.PutRequest) { r.Key = "" },
		"no kind":             func(r *memoryv1.PutRequest) { r.Kind = 0 },
		"unknown kind":        func(r *memoryv1.PutRequest) { r.Kind = 9 },
		"no scope":            func(r *memoryv1.PutRequest) { r.Scope = 0 },
		"expected revision 0": func(r *memoryv1.PutRequest) { r.ExpectedRevision = new(uint64(0)) },
		"unknown retention":   func(r *memoryv1.PutRequest) { r.Retention = "year" },
		"a source twice": func(r *memoryv1.PutRequest) {
			r.Sources = []*memoryv1.Source{{Key: "a", Revision: 1}, {Key: "a", Revision: 2}}
		},
		"a source without a revision": func(r *memoryv1.PutRequest) { r.Sources = []*memoryv1.Source{{Key: "a"}} },
		"itself for a source":         func(r *memoryv1.PutRequest) { r.Sources = []*memoryv1.Source{{Key: "key", Revision: 1}} },
		"too many sources": func(r *memoryv1.PutRequest) {
			for n := range memory.MaxSources + 1 {
				r.Sources = append(r.Sources, &memoryv1.Source{Key: fmt.Sprint("a", n), Revision: 1})
			}
		},
		"another call's key": func(r *memoryv1.PutRequest) { r.ToolCallId = "call-1" },
		"copy for a reference": func(r *memoryv1.PutRequest) {
			r.Kind, r.Content = memoryv1.Kind_KIND_EPISODIC_REFERENCE, []byte(strings.Repeat("a", 1<<10+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := s.stand.Envelope()
			req := putRequest(e.Proto(), "key", "content", nil)
			change(req)
			_, err := s.memory.Put(s.ctx(t, e), req)
			wantCode(t, err, fault.InvalidRequest)
		})
	}
	if s.state(t) != before || len(s.stand.Rows(t)) != 0 {
		t.Error("something was written")
	}
}

func TestDamagedMemoryIsNotRead(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.put(t, "key", "content", nil)
	must(t, err)
	alter(t, s.path, `UPDATE memory_records SET content = x'00'`)
	_, err = s.getAs(t, s.stand.Envelope(), "key")
	wantCode(t, err, fault.PersistenceFailed)
}

// Where a memory came from is kept with every revision.
func TestMemoryKeepsItsOrigin(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.put(t, "key", "first", nil)
	must(t, err)
	_, err = s.put(t, "key", "second", new(uint64(1)))
	must(t, err)
	state := s.state(t)
	for _, want := range []string{s.stand.BindingID, s.stand.RunID, rpctest.SandboxID().String()} {
		if n := strings.Count(state, want); n != 3 { // one record, two changes
			t.Errorf("%q stands %d times in\n%s", want, n, state)
		}
	}
	if strings.Contains(state, "user-1") {
		t.Errorf("the subject stands in the store:\n%s", state)
	}
}
