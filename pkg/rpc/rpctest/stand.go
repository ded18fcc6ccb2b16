package rpctest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
)

// What is committed on a Stand: the binding was cleared once, so that a lower
// epoch and a lower generation have existed.
const (
	BindingID  = "hs_the_binding_under_test"
	RunID      = "run_under_test"
	Epoch      = uint32(1)
	Generation = uint32(2)
	// Instance is the uid of the sandbox in the lease.
	Instance = "instance-2"
	// RunTime is how long the run may take.
	RunTime = 10 * time.Minute
)

// ServiceID is the SPIFFE ID of a service of the Stand's trust domain.
func ServiceID(name string) spiffeid.ID {
	return identity.Service(spiffeid.RequireTrustDomainFromString(identitytest.TrustDomain), name)
}

// SandboxID is the SPIFFE ID of the sandbox in the lease.
func SandboxID() spiffeid.ID {
	return identity.Sandbox(spiffeid.RequireTrustDomainFromString(identitytest.TrustDomain), Instance)
}

// Stand is what stands around a service under test: a trust domain, a capability
// issuer, and a real SQLite store with one binding whose run is active and has
// one event.
type Stand struct {
	Domain *identitytest.Domain
	Minter *capabilitytest.Minter
	// Backend is what the service under test gets.
	Backend *Backend
	// Writer writes past the hooks of Backend.
	Writer *binding.Writer
	// StorePath is the file of the store.
	StorePath string
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	// BindingID and RunID are what Envelope names.
	BindingID, RunID string
}

// NewStand makes one.
func NewStand(t *testing.T) *Stand {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bindings.db")
	store, err := sqlitestore.Open(t.Context(), path)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	logger := slog.New(slog.DiscardHandler)
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "test", Logger: logger})
	must(t, err)
	t.Cleanup(func() { must(t, tel.Shutdown(context.WithoutCancel(t.Context()))) })
	s := &Stand{
		Domain:    identitytest.New(t),
		Minter:    capabilitytest.NewMinter(t),
		Backend:   &Backend{Backend: store},
		Writer:    binding.NewWriter(store, time.Now),
		StorePath: path,
		Logger:    logger,
		Telemetry: tel,
		BindingID: BindingID,
		RunID:     RunID,
	}
	s.commit(t, func(*binding.Identity) {})
	return s
}

// Another is the same Stand with another binding, which has a run of its own, at
// the same epoch and generation. change makes its identity another one.
func (s *Stand) Another(t *testing.T, change func(*binding.Identity)) *Stand {
	t.Helper()
	other := *s
	other.BindingID, other.RunID = "hs_another_"+rand.Text(), "run_another_"+rand.Text()
	other.commit(t, change)
	return &other
}

// RPC is the configuration of an rpc.Server on this Stand.
func (s *Stand) RPC() rpc.Config {
	return rpc.Config{Logger: s.Logger, Verifier: s.Minter.Verifier(), Guard: s.Guard(), Telemetry: s.Telemetry}
}

// Guard admits by what is committed.
func (s *Stand) Guard() *fence.Guard { return fence.NewGuard(s.Writer, time.Now) }

// Source is the identity of id.
func (s *Stand) Source(t *testing.T, id spiffeid.ID) identity.Source {
	t.Helper()
	return s.Domain.Source(t, id)
}

// Envelope is the right one for a new request.
func (s *Stand) Envelope() fence.Envelope {
	return fence.Envelope{
		BindingID: s.BindingID, Epoch: Epoch, Generation: Generation, RunID: s.RunID,
		RequestID: "request-" + rand.Text(), IdempotencyKey: "key-" + rand.Text(),
		Deadline: time.Now().Add(time.Minute),
	}
}

// Grant for an envelope, as the door makes it.
func (s *Stand) Grant(t *testing.T, e fence.Envelope) fence.Grant {
	t.Helper()
	g, err := s.Guard().Admit(t.Context(), e)
	must(t, err)
	return g
}

// Replace gives the binding the next generation.
func (s *Stand) Replace(t *testing.T) {
	t.Helper()
	r := s.Record(t)
	_, err := s.Writer.Replace(context.WithoutCancel(t.Context()), s.BindingID, r.Epoch, r.Generation, claimName, "test")
	must(t, err)
}

// Append adds n events to the log of the run.
func (s *Stand) Append(t *testing.T, n int) {
	t.Helper()
	events := make([]json.RawMessage, n)
	for i := range events {
		events[i] = json.RawMessage(`{"type":"test"}`)
	}
	s.AppendEvents(t, events...)
}

// AppendEvents adds events as they are.
func (s *Stand) AppendEvents(t *testing.T, events ...json.RawMessage) {
	t.Helper()
	g := s.Grant(t, s.Envelope())
	b := binding.Batch{Nonce: rand.Text(), First: s.Record(t).Run.EventHead, Events: events}
	_, err := s.Writer.Append(t.Context(), g, owner, b)
	must(t, err)
}

// Record is what is committed now.
func (s *Stand) Record(t *testing.T) binding.Record {
	t.Helper()
	r, err := s.Writer.Backend().Load(context.WithoutCancel(t.Context()), s.BindingID)
	must(t, err)
	return r
}

// Rows are the ledger's rows of the run.
func (s *Stand) Rows(t *testing.T) []binding.Row {
	t.Helper()
	rows, err := s.Writer.Backend().Rows(context.WithoutCancel(t.Context()), s.BindingID, Epoch, s.RunID)
	must(t, err)
	return rows
}

// state is the record and its ledger as text.
func (s *Stand) state(t *testing.T) string {
	t.Helper()
	b, err := json.Marshal(struct {
		Record binding.Record
		Rows   []binding.Row
	}{s.Record(t), s.Rows(t)})
	must(t, err)
	return string(b)
}

// commit goes the way of a real binding: first lease, clear, run.
func (s *Stand) commit(t *testing.T, change func(*binding.Identity)) {
	t.Helper()
	ctx := t.Context()
	id := binding.Identity{
		Environment: "test", Subject: "user-1", Organization: "org-1", AgentID: "agent-1", AgentVersion: 1,
		ConversationID: "conversation-1", HarnessID: "native", AdapterVersion: "1", ContractVersion: 1,
	}
	change(&id)
	_, _, err := s.Writer.Backend().Insert(ctx, binding.Record{ID: s.BindingID, Identity: id})
	must(t, err)
	_, err = s.Writer.Replace(ctx, s.BindingID, 0, 0, claimName, "test")
	must(t, err)
	_, err = s.Writer.Clear(ctx, s.BindingID, 0, 1, claimName, "test")
	must(t, err)
	must(t, s.Writer.DropLease(ctx, s.BindingID, claimName(1)))
	_, err = s.Writer.UpdateLease(ctx, s.BindingID, Epoch, Generation, func(l *binding.Lease) {
		l.InstanceUID, l.State = Instance, binding.LeaseBound
	})
	must(t, err)
	s.StartRun(t, s.RunID)
}

// StartRun starts a run with one event, which Envelope names from now on.
func (s *Stand) StartRun(t *testing.T, runID string) {
	t.Helper()
	_, err := s.Writer.Start(t.Context(), binding.StartParams{
		BindingID: s.BindingID, RunID: runID, RequestID: "request-start", KeyDigest: "key", ContentDigest: "content",
		Epoch: Epoch, Deadline: time.Now().Add(RunTime), Owner: owner,
	})
	must(t, err)
	s.RunID = runID
	s.Append(t, 1)
}

// ResumeRun ends the run as interrupted and starts the one that carries a
// decision out, which Envelope names from now on.
func (s *Stand) ResumeRun(t *testing.T, carried ...binding.Carried) {
	t.Helper()
	s.resume(t, "interrupt-1", "hash", func(string) string { return "decision" }, carried)
}

// AnswerRun interrupts the run with a question, has it answered, and goes on with
// the run that carries the answer, as the control plane does.
func (s *Stand) AnswerRun(t *testing.T, asked event.InterruptRequested, d event.ResumeDecision) {
	t.Helper()
	body, err := event.InterruptBody(asked)
	must(t, err)
	s.resume(t, asked.InterruptID, event.InterruptHash(body), d.Hash, nil)
}

func (s *Stand) resume(t *testing.T, interrupt, hash string, decision func(askedBy string) string, carried []binding.Carried) {
	t.Helper()
	_, _, err := s.Writer.CommitHead(t.Context(), s.Grant(t, s.Envelope()), binding.HeadCommit{
		ExpectedRevision: s.Record(t).Head.Revision, Codec: "test", CodecVersion: 1, SnapshotRef: "snapshot", SHA256: "digest",
		IdempotencyDigest: rand.Text(), Interrupt: &binding.Interrupt{ID: interrupt, Hash: hash},
	})
	must(t, err)
	s.EndRun(t)
	revision := s.Record(t).Interrupt.Revision
	p := binding.ResumeParams{
		StartParams: binding.StartParams{
			BindingID: s.BindingID, RunID: binding.ResumeRunID(s.BindingID, Epoch, interrupt, revision), RequestID: "request-resume",
			Epoch: Epoch, Deadline: time.Now().Add(RunTime), Owner: owner,
		},
		InterruptID: interrupt, Revision: revision, AskedBy: s.Record(t).Interrupt.RunID, InterruptHash: hash,
		DecisionHash: decision(s.Record(t).Interrupt.RunID), Carried: carried,
	}
	_, err = s.Writer.Resume(t.Context(), p)
	must(t, err)
	s.RunID = p.RunID
	s.Append(t, 1)
}

// EndRun concludes the run as the control plane does, lost where its end is open.
func (s *Stand) EndRun(t *testing.T) {
	t.Helper()
	ctx, g := t.Context(), s.Grant(t, s.Envelope())
	end := s.Record(t).Run.End
	if end.Open() {
		var err error
		end, err = s.Writer.SetEnd(ctx, g, binding.End{Kind: binding.EndLost})
		must(t, err)
	}
	terminal := binding.Batch{Nonce: rand.Text(), First: s.Record(t).Run.EventHead, Events: []json.RawMessage{json.RawMessage(`{"type":"terminal"}`)}}
	_, err := s.Writer.Terminate(ctx, g, owner, terminal, end)
	must(t, err)
	must(t, s.Writer.Archive(ctx, s.BindingID, s.RunID))
	must(t, s.Writer.PutRun(ctx, binding.RunDocument{
		RunID: s.RunID, BindingID: s.BindingID, Epoch: Epoch, Generation: Generation, KeyDigest: "key", ContentDigest: "content",
		End: end, Events: terminal.Next(), Terminal: terminal.Events[0],
	}))
	must(t, s.Writer.DropRun(ctx, s.BindingID, s.RunID))
}

// owner drives the run.
const owner = "replica-1"

func claimName(generation uint32) string { return fmt.Sprintf("claim-%d", generation) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
