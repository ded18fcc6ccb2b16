package catalogue_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
)

func TestMain(m *testing.M) {
	hostile.MainIfAsked()
	goleak.VerifyTestMain(m)
}

// record is a log that can be read while it is written.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// run runs a catalogue until the end of the test and waits until every server was
// started once.
func run(t *testing.T, servers ...catalogue.Server) (*catalogue.Catalogue, *record) {
	t.Helper()
	log := &record{}
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	// The hostile server is the test's own program, among its own files.
	weak := mcpstdio.OpenWorlds(t.Context(), mcpstdio.WorldsConfig{AllowWeak: true, Logger: logger})
	c, err := catalogue.New(catalogue.Config{Servers: servers}, catalogue.Options{Logger: logger, BackOff: 10 * time.Millisecond, Worlds: weak})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	wait(t, func() bool { return c.Ready(t.Context()) == nil })
	return c, log
}

// stdio is a hostile server with tools.
func stdio(t *testing.T, namespace string, tools []string, args ...string) catalogue.Server {
	t.Helper()
	return catalogue.Server{Namespace: namespace, Transport: catalogue.TransportStdio, Command: hostile.Command(t, args...), Tools: tools}
}

// wait until a condition holds; what is waited for happens in another process.
func wait(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; {
		if holds() {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it did not come to pass within 30 s")
		}
	}
}
