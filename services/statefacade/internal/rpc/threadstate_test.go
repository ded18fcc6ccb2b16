package rpc_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
)

func (s *session) load(t *testing.T) (loaded, error) {
	t.Helper()
	e := s.stand.Envelope()
	return load(s.ctx(t, e), s.thread, &threadstatev1.LoadHeadRequest{Envelope: e.Proto(), Codec: testCodec, Adapter: testAdapter})
}

// wantHead asserts what a worker loads.
func (s *session) wantHead(t *testing.T, revision uint64, payload string) {
	t.Helper()
	h, err := s.load(t)
	if err != nil || h.GetRevision() != revision || string(h.payload) != payload {
		t.Errorf("head is %d with %d bytes, %v; want %d with %d", h.GetRevision(), len(h.payload), err, revision, len(payload))
	}
	if want := blob.Of([]byte(payload)); revision > 0 && (string(h.GetSnapshot().GetSha256()) != string(want.SHA256[:]) || h.GetSnapshot().GetSize() != uint64(len(payload))) {
		t.Errorf("payload is said to be %v", h.GetSnapshot())
	}
}

func TestNewThreadHasNoHead(t *testing.T) {
	newSession(t, capability.ThreadState).wantHead(t, 0, "")
}

func TestTurnsFollowEachOther(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	for turn := range uint64(3) {
		payload := fmt.Sprintf("state of turn %d\x00\xff", turn)
		ref, err := s.write(t, "snapshot", payload)
		must(t, err)
		res, err := s.commit(t, ref, turn)
		if err != nil || res.GetRevision() != turn+1 || res.GetEnd() != "success" {
			t.Fatalf("got %v, %v", res, err)
		}
		s.stand.EndRun(t)
		s.stand.StartRun(t, fmt.Sprint("run_of_turn_", turn+1))
		s.wantHead(t, turn+1, payload)
	}
}

// A pending snapshot is never restored, not by its own run and not by the next.
func TestPendingSnapshotIsNeverLoaded(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	_, err := s.write(t, "one", "pending")
	must(t, err)
	s.wantHead(t, 0, "")
	s.stand.EndRun(t)
	s.stand.StartRun(t, "run_after_that")
	s.wantHead(t, 0, "")
}

func TestClearLeavesNothingToLoad(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "one", "state")
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
	e := s.stand.Envelope()
	_, err = s.stand.Writer.Clear(t.Context(), e.BindingID, e.Epoch, e.Generation, func(uint32) string { return "claim" }, "test")
	must(t, err)
	_, err = s.load(t)
	wantCode(t, err, fault.StaleLease)
	if h := s.stand.Record(t).Head; h != (binding.Head{}) {
		t.Errorf("head is %+v", h)
	}
}

func TestHeadThatCannotBeTrustedIsNotLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		damage string
		code   fault.Code
	}{
		"payload changed": {`UPDATE thread_snapshots SET payload = x'00'`, fault.PersistenceFailed},
		"payload and its digest changed": {
			`UPDATE thread_snapshots SET payload = x'00', sha256 = x'6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d'`,
			fault.PersistenceFailed,
		},
		"payload gone":          {`DELETE FROM thread_snapshots`, fault.PersistenceFailed},
		"of another thread":     {`UPDATE thread_snapshots SET binding_id = 'hs_somebody_elses_thread'`, fault.PersistenceFailed},
		"codec version differs": {`UPDATE binding_records SET doc = CAST(json_set(doc, '$.head.codec_version', 2) AS BLOB)`, fault.WorkerMismatch},
		"codec differs":         {`UPDATE binding_records SET doc = CAST(json_set(doc, '$.head.codec', 'other') AS BLOB)`, fault.WorkerMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, capability.ThreadState)
			ref, err := s.write(t, "key", "state")
			must(t, err)
			_, err = s.commit(t, ref, 0)
			must(t, err)
			s.wantHead(t, 1, "state")
			for _, path := range []string{s.path, s.stand.StorePath} {
				alter(t, path, c.damage)
			}
			h, err := s.load(t)
			wantCode(t, err, c.code)
			if len(h.payload) > 0 {
				t.Errorf("it was loaded all the same: %v", h)
			}
		})
	}
}

// alter runs a statement on the file that has its table.
func alter(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil && !isNoTable(err) {
		t.Fatal(err)
	}
}

// An adapter loads what it was written with or what it moves up, and nothing else:
// one of another version may take the same codec for something else.
func TestLoadByAnotherAdapter(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	// The thread of the stand was begun with version 1.
	for version, want := range map[string]fault.Code{
		"1": "", "1.0.1": "", "1.4.0": "", "1.0.0-rc.1": fault.WorkerMismatch, "0.9.0": fault.WorkerMismatch, "2.0.0": fault.WorkerMismatch, "next": fault.WorkerMismatch,
	} {
		for harness, other := range map[string]fault.Code{testAdapter.GetHarnessId(): want, "acp": fault.WorkerMismatch} {
			e := s.stand.Envelope()
			_, err := load(s.ctx(t, e), s.thread, &threadstatev1.LoadHeadRequest{
				Envelope: e.Proto(), Codec: testCodec, Adapter: &threadstatev1.Adapter{HarnessId: harness, Version: version},
			})
			if fault.CodeOf(err) != other {
				t.Errorf("%s %s: got %v, want %q", harness, version, err, other)
			}
		}
	}
	e := s.stand.Envelope()
	_, err := load(s.ctx(t, e), s.thread, &threadstatev1.LoadHeadRequest{Envelope: e.Proto(), Codec: testCodec})
	wantCode(t, err, fault.InvalidRequest)
}

// A token for one of the two services opens nothing of the other.
func TestTwoAudiences(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	e := s.stand.Envelope()
	_, err := s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "content", nil))
	wantCode(t, err, fault.AudienceMismatch)
	s.audience, s.scopes = capability.Memory, []string{"user"}
	_, err = s.write(t, "key", "state")
	wantCode(t, err, fault.AudienceMismatch)
}
