package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
)

// A worker is bound once, for life.
func TestBindOnce(t *testing.T) {
	w := newWorker(t)
	if w.Ready(t.Context()).Bound {
		t.Fatal("an unbound worker says that it is bound")
	}
	w.bind(t, right())
	w.bind(t, right())
	if !w.Ready(t.Context()).Bound {
		t.Error("a bound worker says that it is not")
	}
	other := right()
	other.Digest = sha256.Sum256([]byte("another request"))
	connected := false
	err := w.Bind(t.Context(), other, func() (Connector, error) { connected = true; return w.connector, nil })
	wantCode(t, err, fault.BindingConflict)
	if n := w.adapter.initialized.Load(); n != 1 || connected {
		t.Errorf("initialized %d times; connected again: %v", n, connected)
	}
	read(t, w.start(t, "run-1"))
	w.bind(t, right()) // the same, whatever happened since
}

func TestBindOfAnotherWorker(t *testing.T) {
	for field, change := range map[string]func(*Info){
		"harness_id":          func(i *Info) { i.HarnessID = "native" },
		"adapter_version":     func(i *Info) { i.AdapterVersion = "1.2.4" },
		"worker_image_digest": func(i *Info) { i.ImageDigest = "sha256:other" },
		"boot_nonce":          func(i *Info) { i.BootNonce = "nonce-0" },
	} {
		t.Run(field, func(t *testing.T) {
			w := newWorker(t)
			b := right()
			change(&b.Expected)
			err := w.Bind(t.Context(), b, w.connect)
			wantCode(t, err, fault.WorkerMismatch)
			if !strings.Contains(fault.From(err, "").Detail(), field) {
				t.Errorf("the detail does not name the field: %v", err)
			}
			if w.adapter.initialized.Load() != 0 || w.Ready(t.Context()).Bound {
				t.Error("it was bound all the same")
			}
			w.bind(t, right())
		})
	}
}

// What fails leaves the worker unbound.
func TestBindFails(t *testing.T) {
	w := newWorker(t)
	w.adapter.initialize = func(context.Context, harness.Construction) error {
		return fault.New(fault.HarnessOptionsInvalid, "test")
	}
	wantCode(t, w.Bind(t.Context(), right(), w.connect), fault.HarnessOptionsInvalid)
	w.adapter.initialize = func(context.Context, harness.Construction) error { panic("of the adapter") }
	wantCode(t, w.Bind(t.Context(), right(), w.connect), fault.Internal)
	w.adapter.initialize = nil
	wantCode(t, w.Bind(t.Context(), right(), func() (Connector, error) {
		return nil, fault.New(fault.InvalidRequest, "test")
	}), fault.InvalidRequest)
	if w.adapter.initialized.Load() != 2 || w.adapter.cleanups.Load() != 0 {
		t.Error("a runtime was built for nothing")
	}
	if !w.connector.closed {
		t.Error("a connector was left open")
	}
	if w.Ready(t.Context()).Bound {
		t.Error("the worker is bound")
	}
	w.bind(t, right())
}

// While a runtime is built the worker answers, and a second bind waits for the
// first instead of building another one.
func TestBindTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t)
		built := make(chan struct{})
		w.adapter.initialize = func(context.Context, harness.Construction) error { <-built; return nil }
		answers := make(chan error, 2)
		for range 2 {
			go func() { answers <- w.Bind(t.Context(), right(), w.connect) }()
		}
		synctest.Wait()
		if w.Ready(t.Context()).Bound {
			t.Error("bound before it is built")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, w.Bind(short, right(), w.connect), fault.DeadlineExceeded)
		close(built)
		for range 2 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if n := w.adapter.initialized.Load(); n != 1 {
			t.Errorf("initialized %d times", n)
		}
	})
}

// A bind that a shutdown overtakes leaves nothing behind.
func TestShutdownDuringBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t)
		built := make(chan struct{})
		w.adapter.initialize = func(context.Context, harness.Construction) error { <-built; return nil }
		bound, shut := make(chan error, 1), make(chan error, 1)
		go func() { bound <- w.Bind(t.Context(), right(), w.connect) }()
		synctest.Wait()
		go func() { shut <- w.Shutdown(t.Context()) }()
		synctest.Wait()
		close(built)
		wantCode(t, <-bound, fault.SandboxNotReady)
		if err := <-shut; err != nil {
			t.Error(err)
		}
		if w.adapter.cleanups.Load() != 1 || !w.connector.closed {
			t.Error("the runtime was not cleaned up")
		}
	})
}

// Whoever repeats a bind knows the worker by the capability whose answer it saw;
// one that comes late changes nothing.
func TestBindAgainTakesTheNewerCapability(t *testing.T) {
	w := bound(t)
	again := func(id string, at int64, token string) {
		b := right()
		b.Capability = Capability{ID: id, IssuedAt: time.Unix(at, 0)}
		b.Tokens = []Token{{Audience: "thread-state", Token: token}}
		w.bind(t, b)
	}
	again("jti-2", 101, "second")
	again("jti-0", 99, "late")
	if got := w.Authority(); got != (Authority{CapabilityID: "jti-2", BootNonce: "nonce-1"}) {
		t.Errorf("authority is %+v", got)
	}
	r, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), nil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, r)
	if got := w.connector.tokens[0].Token; got != "second" {
		t.Errorf("the run has the token %q", got)
	}
}

func TestCommitted(t *testing.T) {
	w := newWorker(t)
	if _, err := w.Committed(t.Context(), bindingID); !errors.Is(err, fence.ErrUnknownBinding) {
		t.Errorf("unbound: %v", err)
	}
	w.bind(t, right())
	if _, err := w.Committed(t.Context(), "hs_another"); !errors.Is(err, fence.ErrUnknownBinding) {
		t.Errorf("another binding: %v", err)
	}
	got, err := w.Committed(t.Context(), bindingID)
	if err != nil || got != (fence.Committed{BindingID: bindingID, Epoch: 1, Generation: 2}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestReady(t *testing.T) {
	w := newWorker(t)
	want := Info{Ready: true, HarnessID: "scripted", AdapterVersion: "1.2.3", ImageDigest: "sha256:image", BootNonce: "nonce-1"}
	if got := w.Ready(t.Context()); got != want {
		t.Errorf("got %+v", got)
	}
	w.adapter.health = errors.New("no runtime")
	if w.Ready(t.Context()).Ready {
		t.Error("ready without a healthy adapter")
	}
	w.adapter.health = nil
	w.cfg.Health = func(context.Context) error { return errors.New("no workspace") }
	if w.Ready(t.Context()).Ready {
		t.Error("ready without a workspace")
	}
	w.cfg.Health = func(context.Context) error { return nil }
	if err := w.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Ready(t.Context()).Ready {
		t.Error("ready after the shutdown")
	}
	if w.adapter.streams.Load() != 0 {
		t.Error("ready ran the harness")
	}
}

// A token stands in no log and in nothing that is printed.
func TestTokenIsNotPrinted(t *testing.T) {
	const secret = "eyJ-the-secret"
	b := right()
	b.Tokens = []Token{{Audience: "memory", Token: secret}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("bind", "token", b.Tokens[0])
	for _, text := range []string{
		log.String(), fmt.Sprint(b), fmt.Sprintf("%+v", b), fmt.Sprintf("%#v", b.Tokens), fmt.Sprintf("%s %q", b.Tokens[0], b.Tokens[0]),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("the token stands in %s", text)
		}
	}
}
