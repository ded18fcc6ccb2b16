package lease_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestTheFirstLease(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	h := w.acquire(t, req)
	r := w.record(t)
	want := binding.Lease{
		ClaimName: binding.ClaimName(bindingID, 1), ClaimUID: "claim-instance-1", InstanceUID: "instance-1", BootNonce: "nonce-instance-1",
		Endpoint: "https://worker.invalid", ImageDigest: runstest.Digest, BoundBy: h.Token.ID, Profile: "default", State: binding.LeaseBound,
	}
	if r.Generation != 1 || r.Lease == nil || *r.Lease != want {
		t.Errorf("generation %d, lease %+v\nwant %+v", r.Generation, r.Lease, want)
	}
	if !reflect.DeepEqual(h.Record, r) {
		t.Errorf("held %+v, committed %+v", h.Record, r)
	}
	if err := h.Grant.Validate(); err != nil || h.Grant.Envelope() != req.Envelope {
		t.Errorf("grant of %+v, %v", h.Grant.Envelope(), err)
	}
	if len(h.CallTokens) > 0 {
		t.Error("call tokens that came with bind come once more")
	}
	binds := w.workers.binds()
	if len(binds) != 1 || binds[0].token != h.Token.Token {
		t.Fatalf("binds: %+v", binds)
	}
	b := binds[0].Binding
	if b.Envelope != req.Envelope || b.ConversationID != "conversation-1" || b.Endpoints.ModelProxy.Address != "https://modelproxy.invalid" ||
		b.Expected.BootNonce != "nonce-instance-1" || b.Expected.ImageDigest != runstest.Digest || len(b.Tokens) != 3 {
		t.Errorf("bound with %+v", b)
	}
	if !reflect.DeepEqual(b.Agent, worker.Agent{
		ID: "demo", Version: 3, Name: "Demo", HarnessOptions: []byte(`{"n":12345678901234567890}`), Model: worker.Model{Alias: "small", MaxOutputTokens: 6}, Prompt: "Be kind.",
	}) || b.Limits.MaxModelCalls != 4 || b.Limits.MaxToolCalls != 5 || b.Limits.MaxStateBytes == 0 || b.Limits.ShutdownGrace == 0 {
		t.Errorf("bound with agent %+v and limits %+v", b.Agent, b.Limits)
	}
}

func TestALeaseIsUsedWhileItsInstanceLives(t *testing.T) {
	w := newWorld(t)
	first := w.run(t)
	bound := w.acquire(t, first)
	w.end(t, first)
	second := w.run(t)
	h := w.acquire(t, second)
	if w.provider.Made() != 1 || len(w.workers.binds()) != 1 || w.record(t).Generation != 1 {
		t.Errorf("%d instances, %d binds, generation %d", w.provider.Made(), len(w.workers.binds()), w.record(t).Generation)
	}
	if h.Record.Lease.BoundBy != bound.Token.ID || h.Token.ID == bound.Token.ID || h.Grant.Envelope().RunID != second.Envelope.RunID {
		t.Errorf("held %+v", h.Record.Lease)
	}
	if len(h.CallTokens) != 3 {
		t.Errorf("a later run gets %d call tokens", len(h.CallTokens))
	}
}

func TestADeadInstanceIsReplaced(t *testing.T) {
	w := newWorld(t)
	first := w.run(t)
	w.acquire(t, first)
	w.end(t, first)
	w.provider.kill(t, binding.ClaimName(bindingID, 1))
	h := w.acquire(t, w.run(t))
	r := w.record(t)
	if r.Generation != 2 || h.Grant.Envelope().Generation != 2 || r.Lease.InstanceUID != "instance-2" || h.Record.Lease.ClaimName != binding.ClaimName(bindingID, 2) {
		t.Errorf("generation %d, lease %+v", r.Generation, r.Lease)
	}
	if len(r.Ending) != 1 || r.Ending[0].Lease == nil || r.Ending[0].Lease.InstanceUID != "instance-1" || r.Ending[0].Run != nil {
		t.Errorf("ending: %+v", r.Ending)
	}
	if binds := w.workers.binds(); len(binds) != 2 || binds[1].Envelope.Generation != 2 {
		t.Errorf("binds: %+v", binds)
	}
}

// The protocol: replacement commits a higher generation before the new worker
// can start.
func TestTheHigherGenerationIsCommittedBeforeTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.workers.ready = func(_ context.Context, _ string, r worker.Ready) (worker.Ready, error) {
			r.Ready = false
			return r, nil
		}
		w.refused(t, w.run(t), fault.SandboxNotReady)
		if got := w.provider.generations(); !slices.Equal(got, []uint32{1, 2, 3}) {
			t.Errorf("generations at the claims: %v", got)
		}
		for _, c := range w.provider.claims {
			if !c.current {
				t.Errorf("claim %s was made, and is not that of the committed generation %d", c.name, c.generation)
			}
		}
		r := w.record(t)
		if r.Generation != 4 || r.Lease.State != binding.LeaseClaiming || r.Lease.InstanceUID != "" || len(r.Ending) != 3 || r.Run == nil {
			t.Errorf("left %+v, ending %+v", r.Lease, r.Ending)
		}
		if n := w.workers.unclosed(); n != 0 {
			t.Errorf("%d clients were not closed", n)
		}
	})
}

func TestTheSecondSandboxWillDo(t *testing.T) {
	for name, lie := range map[string]func(worker.Ready) (worker.Ready, error){
		"not ready":            func(r worker.Ready) (worker.Ready, error) { r.Ready = false; return r, nil },
		"no answer":            func(r worker.Ready) (worker.Ready, error) { return r, fault.New(fault.DependencyUnavailable, "test") },
		"bound by another one": func(r worker.Ready) (worker.Ready, error) { r.Bound = true; return r, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.workers.ready = func(_ context.Context, uid string, r worker.Ready) (worker.Ready, error) {
					if uid == "instance-1" {
						return lie(r)
					}
					return r, nil
				}
				h := w.acquire(t, w.run(t))
				if g := w.provider.generations(); !slices.Equal(g, []uint32{1, 2}) || h.Record.Lease.InstanceUID != "instance-2" || h.Grant.Envelope().Generation != 2 {
					t.Errorf("claims at %v, held %+v", g, h.Record.Lease)
				}
				if binds := w.workers.binds(); len(binds) != 1 || binds[0].uid != "instance-2" {
					t.Errorf("binds: %+v", binds)
				}
				if n := w.workers.unclosed(); n != 1 {
					t.Errorf("%d clients are open", n)
				}
			})
		})
	}
}

// A lease that was bound is not used when somebody else answers for it.
func TestAnotherWorkerInTheLeaseIsReplaced(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"another boot nonce at the address": func(w *world) { w.lies(func(r *worker.Ready) { r.BootNonce = "another" }) },
		"a worker that forgot its binding":  func(w *world) { w.lies(func(r *worker.Ready) { r.Bound = false }) },
		"another instance under the claim": func(w *world) {
			w.workers.ready = func(_ context.Context, uid string, r worker.Ready) (worker.Ready, error) {
				if uid == "instance-2" { // which even knows what the first one knew
					r.BootNonce, r.Bound = "nonce-instance-1", true
				}
				return r, nil
			}
			w.provider.before = func(ctx context.Context, n int, c sandbox.Claim) error { // after it was said to be alive
				if n == 2 {
					return w.provider.Provider.Release(ctx, c.Name)
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.run(t)
			w.acquire(t, first)
			w.end(t, first)
			change(w)
			h := w.acquire(t, w.run(t))
			if g := w.provider.generations(); !slices.Equal(g, []uint32{1, 1, 2}) || h.Grant.Envelope().Generation != 2 {
				t.Errorf("claims at %v, held %+v", g, h.Record.Lease)
			}
			if binds := w.workers.binds(); len(binds) != 2 || binds[1].uid != h.Record.Lease.InstanceUID || binds[1].uid == "instance-1" {
				t.Errorf("binds: %+v", binds)
			}
		})
	}
}

// A sandbox of an image, a profile or an agent as it was before is replaced, and no
// turn fails for it: each conversation has one when an operator upgrades.
func TestAnotherImageThanTheLeases(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world){
		"the lease's image is not the instance's": func(t *testing.T, w *world) {
			_, err := w.writer.UpdateLease(t.Context(), bindingID, 0, 1, func(l *binding.Lease) { l.ImageDigest = "sha256:another" })
			must(t, err)
		},
		"the worker is of an earlier adapter": func(_ *testing.T, w *world) {
			w.lies(func(r *worker.Ready) { r.AdapterVersion = "0.9.0" })
		},
		"the provider has another profile": func(_ *testing.T, w *world) {
			w.provider.before = func(_ context.Context, n int, _ sandbox.Claim) error {
				if n == 2 {
					return fault.New(fault.WorkerMismatch, "test")
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.run(t)
			w.acquire(t, first)
			w.end(t, first)
			change(t, w)
			w.acquire(t, w.run(t))
			if r := w.record(t); r.Generation != 2 || r.Lease.InstanceUID != "instance-2" || !slices.Equal(w.provider.generations(), []uint32{1, 1, 2}) {
				t.Errorf("generation %d, lease %+v, claims at %v", r.Generation, r.Lease, w.provider.generations())
			}
		})
	}
}

// What takes the place of an outdated sandbox and is wrong as well ends the run: there
// is no third.
func TestWhatFollowsAnOutdatedSandboxMustBeRight(t *testing.T) {
	w := newWorld(t)
	first := w.run(t)
	w.acquire(t, first)
	w.end(t, first)
	w.workers.ready = func(_ context.Context, _ string, r worker.Ready) (worker.Ready, error) {
		r.AdapterVersion = "0.9.0"
		return r, nil
	}
	w.refused(t, w.run(t), fault.WorkerMismatch)
	if r := w.record(t); r.Generation != 2 || r.Lease.InstanceUID != "" || !slices.Equal(w.provider.generations(), []uint32{1, 1, 2}) {
		t.Errorf("generation %d, lease %+v, claims at %v", r.Generation, r.Lease, w.provider.generations())
	}
}

// lies makes the first instance lie.
func (w *world) lies(change func(*worker.Ready)) {
	w.workers.ready = func(_ context.Context, uid string, r worker.Ready) (worker.Ready, error) {
		if uid == "instance-1" {
			change(&r)
		}
		return r, nil
	}
}

// Another sandbox would be as wrong: none is tried.
func TestAMismatchIsNotTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*worker.Ready)
		want   fault.Code
	}{
		"harness":         {func(r *worker.Ready) { r.HarnessID = "other" }, fault.WorkerMismatch},
		"adapter":         {func(r *worker.Ready) { r.AdapterVersion = "1.0.1" }, fault.WorkerMismatch},
		"image":           {func(r *worker.Ready) { r.ImageDigest = "sha256:1" }, fault.WorkerMismatch},
		"no protocol":     {func(r *worker.Ready) { r.ProtocolVersions = nil }, fault.ProtocolUnsupported},
		"other protocol":  {func(r *worker.Ready) { r.ProtocolVersions = []uint32{0, 2} }, fault.ProtocolUnsupported},
		"no nonce":        {func(r *worker.Ready) { r.BootNonce = "" }, fault.Protocol},
		"a huge nonce":    {func(r *worker.Ready) { r.BootNonce = string(make([]byte, 1<<20)) }, fault.Protocol},
		"a strange nonce": {func(r *worker.Ready) { r.BootNonce = "a b" }, fault.Protocol},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.lies(c.change)
			w.refused(t, w.run(t), c.want)
			r := w.record(t)
			if len(w.provider.generations()) != 1 || r.Generation != 1 || r.Lease.BootNonce != "" || len(w.workers.binds()) > 0 || w.workers.unclosed() != 0 {
				t.Errorf("claims at %v, lease %+v", w.provider.generations(), r.Lease)
			}
		})
	}
}

func TestFailuresThatAnotherSandboxWouldMeetAsWell(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(w *world)
		want    fault.Code
	}{
		"no place": {func(w *world) { w.provider.Refuse(fault.New(fault.SandboxCapacity, "test")) }, fault.SandboxCapacity},
		"no capability service": {func(w *world) {
			w.minter.mint = func(context.Context) error { return fault.New(fault.DependencyUnavailable, "test") }
		}, fault.DependencyUnavailable},
		"options that the harness refuses": {func(w *world) {
			w.workers.bind = func(context.Context, string) error { return fault.New(fault.HarnessOptionsInvalid, "test") }
		}, fault.HarnessOptionsInvalid},
		"no identity of the instance": {func(w *world) {
			w.provider.Provider = runstest.NewProvider(otherTD)
		}, fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.breakIt(w)
			w.refused(t, w.run(t), c.want)
			if g := w.record(t).Generation; g != 1 || len(w.provider.generations()) != 1 {
				t.Errorf("generation %d, claims at %v", g, w.provider.generations())
			}
		})
	}
}

// A worker that dies or goes deaf in the middle of bind is one sandbox's trouble.
func TestABindThatBreaksIsTriedInAnotherSandbox(t *testing.T) {
	for name, bind := range map[string]func(ctx context.Context) error{
		"connection broke": func(context.Context) error { return fault.New(fault.DependencyUnavailable, "test") },
		"no answer":        func(ctx context.Context) error { <-ctx.Done(); return fault.From(ctx.Err(), "test") },
		"bound elsewise":   func(context.Context) error { return fault.New(fault.BindingConflict, "test") },
		"shutting down":    func(context.Context) error { return fault.New(fault.SandboxNotReady, "test") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.workers.bind = func(ctx context.Context, uid string) error {
					if uid == "instance-1" {
						return bind(ctx)
					}
					return nil
				}
				if h := w.acquire(t, w.run(t)); h.Grant.Envelope().Generation != 2 || h.Record.Lease.InstanceUID != "instance-2" {
					t.Errorf("held %+v", h.Record.Lease)
				}
			})
		})
	}
}

// A worker that crashes at its start is not waited for.
func TestACrashAtTheStartIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.workers.ready = func(_ context.Context, uid string, r worker.Ready) (worker.Ready, error) {
			if uid == "instance-1" {
				w.provider.mu.Lock()
				w.provider.gone = map[string]bool{uid: true}
				w.provider.mu.Unlock()
				return r, fault.New(fault.DependencyUnavailable, "test")
			}
			return r, nil
		}
		began := time.Now()
		w.acquire(t, w.run(t))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a dead worker was waited for for %v", took)
		}
	})
}

// A worker that was ready before gets two seconds, a new one twenty.
func TestADeafWorkerIsReplacedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.run(t)
		w.acquire(t, first)
		w.end(t, first)
		w.workers.ready = func(ctx context.Context, uid string, r worker.Ready) (worker.Ready, error) {
			if uid == "instance-1" {
				<-ctx.Done()
				return r, fault.From(ctx.Err(), "test")
			}
			return r, nil
		}
		began := time.Now()
		h := w.acquire(t, w.run(t))
		if took := time.Since(began); took != 2*time.Second || h.Grant.Envelope().Generation != 2 {
			t.Errorf("took %v, held %+v", took, h.Record.Lease)
		}
	})
}

func TestTheRunsOwnTimeIsNotTheSandboxesFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.workers.ready = func(_ context.Context, _ string, r worker.Ready) (worker.Ready, error) {
			r.Ready = false
			return r, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.Acquire(ctx, w.run(t)); !fault.Is(err, fault.DeadlineExceeded) {
			t.Errorf("acquire: %v", err)
		}
		if r := w.record(t); r.Generation != 1 || len(r.Ending) > 0 {
			t.Errorf("it was replaced: %+v", r)
		}
	})
}

// A run that had done anything does not go on in another sandbox: nobody knows
// what a repetition would do.
func TestARunThatHadDoneSomethingIsNotCarriedOver(t *testing.T) {
	for name, before := range map[string]bool{"it died before": true, "it never gets ready": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				req := w.run(t)
				if before {
					w.acquire(t, req)
					w.provider.kill(t, binding.ClaimName(bindingID, 1))
				} else {
					w.lies(func(r *worker.Ready) { r.Ready = false })
				}
				w.event(t, req)
				w.refused(t, req, fault.SandboxEvicted)
				r := w.record(t)
				i := slices.IndexFunc(r.Ending, func(e binding.Ending) bool { return e.Run != nil })
				if r.Run != nil || r.Generation != 2 || i < 0 || r.Ending[i].Run.ID != req.Envelope.RunID || r.Ending[i].Run.End.Kind != binding.EndLost {
					t.Errorf("run %+v, ending %+v", r.Run, r.Ending)
				}
				if n := len(w.provider.generations()); n != 1 {
					t.Errorf("%d claims", n)
				}
			})
		})
	}
}

// event commits an event of the run.
func (w *world) event(t *testing.T, req lease.Request) {
	t.Helper()
	g, err := w.guard().Admit(t.Context(), req.Envelope)
	must(t, err)
	_, err = w.writer.Append(t.Context(), g, owner, binding.Batch{Nonce: "n", Events: []json.RawMessage{json.RawMessage(`{"type":"run.started"}`)}})
	must(t, err)
}
