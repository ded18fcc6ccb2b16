//go:build benchtools

package toolbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/mcphttp"
)

// Sizes of TestBenchTools.
const (
	benchCalls   = 400             // of each kind, one after the other
	benchCallers = 16              // at once, each in a run of its own
	benchFor     = 8 * time.Second // of each of the rates
	benchDirect  = "echo"
)

// figures is the closing line.
type figures struct {
	Target       string  `json:"target"`
	Calls        int     `json:"calls"`
	Direct       float64 `json:"direct_p50_ms"`
	Brokered     float64 `json:"brokered_p50_ms"`
	Brokered99   float64 `json:"brokered_p99_ms"`
	CallsPerS    float64 `json:"calls_per_s"`
	DecidingPerS float64 `json:"deciding_writes_per_s"`
}

// TestBenchTools is `make bench-tools`: a call through the broker, over mutual TLS,
// with the real OpenFGA server, the ledger on SQLite and the audit, beside the same
// call of the same server made directly, in turns. A deciding write is write 4 as a
// whole (admission, row, outcome, release), with nothing in between.
func TestBenchTools(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h, func(c *catalogue.Server) { c.Timeout, c.Limits = "30s", &catalogue.Limits{Concurrency: 64} })
	direct := directly(t, h)
	out := figures{Target: "bench-tools", Calls: benchCalls}
	var d, b []time.Duration
	for n := range benchCalls + 20 {
		dt, bt := took(t, direct), took(t, func() error { return s.once(t, s.stand) })
		if n >= 20 { // the first ones warm connections
			d, b = append(d, dt), append(b, bt)
		}
	}
	out.Direct, out.Brokered, out.Brokered99 = at(d, 50), at(b, 50), at(b, 99)
	s.parts(t)
	var runs []*rpctest.Stand
	for range benchCallers {
		runs = append(runs, s.stand.Another(t, func(*binding.Identity) {}))
	}
	out.CallsPerS = rate(t, runs, func(r *rpctest.Stand) error { return s.once(t, r) })
	runs = nil // a run has 4096 effects in all
	for range benchCallers {
		runs = append(runs, s.stand.Another(t, func(*binding.Identity) {}))
	}
	effects := binding.NewEffects(s.stand.Writer)
	out.DecidingPerS = rate(t, runs, func(r *rpctest.Stand) error { return bare(t, effects, r) })
	text, err := json.Marshal(out)
	must(t, err)
	fmt.Println(string(text))
}

// directly calls the server without a broker.
func directly(t *testing.T, h *hostile.HTTP) func() error {
	t.Helper()
	url := h.Serve(t)
	allow, err := egress.ParsePrefixes([]string{"127.0.0.1/32"})
	must(t, err)
	peer, err := mcphttp.Connect(t.Context(), mcphttp.Config{
		URL: url, ConnectTimeout: time.Minute, Transport: egress.New(egress.Policy{Allow: allow, Ports: []uint16{portOf(t, url)}}, nil),
	})
	must(t, err)
	t.Cleanup(func() { must(t, peer.Close()) })
	return func() error {
		_, err := peer.Call(t.Context(), benchDirect, json.RawMessage(`{}`), time.Time{})
		return err
	}
}

// once makes one call in a run.
func (s *session) once(t *testing.T, in *rpctest.Stand) error {
	t.Helper()
	e := in.Envelope()
	token := s.stand.Minter.Mint(capability.Claims{
		Audience: capability.ToolBroker, Subject: rpctest.SandboxID(), Tools: []string{"h." + benchDirect},
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
	_, err := s.client.CallTool(pkgrpc.WithToken(t.Context(), token), request(e, "h."+benchDirect, `{}`))
	return err
}

func bare(t *testing.T, effects *binding.Effects, in *rpctest.Stand) error {
	t.Helper()
	e := in.Envelope()
	_, err := effects.Do(t.Context(), in.Grant(t, e), binding.Effect{Key: e.IdempotencyKey, Kind: "bench", ArgsDigest: "none"},
		func(context.Context) ([]byte, error) { return []byte(`{}`), nil })
	return err
}

// parts says what each part of a brokered call costs by itself.
func (s *session) parts(t *testing.T) {
	t.Helper()
	e := s.stand.Envelope()
	token := s.stand.Minter.Mint(capability.Claims{
		Audience: capability.ToolBroker, Subject: rpctest.SandboxID(), Tools: []string{"h.echo"},
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
	verifier, guard, effects := s.stand.Minter.Verifier(), s.stand.Guard(), binding.NewEffects(s.stand.Writer)
	authorizer, err := openfgaauthz.New(s.grants.config())
	must(t, err)
	file, err := audit.OpenFile(t.TempDir()+"/audit.jsonl", audit.DefaultMaxBytes)
	must(t, err)
	defer func() { must(t, file.Close()) }()
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"mutual TLS and RPC (a call that is refused at its first check)", func() error {
			_, _ = s.client.CallTool(t.Context(), request(fence.Envelope{}, "h.echo", `{}`)) // no token
			return nil
		}},
		{"capability (JWT)", func() error {
			_, err := verifier.Verify(t.Context(), token, capability.ToolBroker, rpctest.SandboxID())
			return err
		}},
		{"fence at the door", func() error { _, err := guard.Admit(t.Context(), s.stand.Envelope()); return err }},
		{"committed record", func() error { _, err := s.stand.Writer.Backend().Load(t.Context(), s.stand.BindingID); return err }},
		{"OpenFGA, two checks at once", func() error {
			errs := make(chan error, 2)
			for _, object := range []string{authz.ToolID("h.echo"), authz.AgentID("agent-1")} {
				go func() { errs <- authorizer.Check(t.Context(), "user-1", authz.CanInvoke, object) }()
			}
			if err := <-errs; err != nil {
				return err
			}
			return <-errs
		}},
		{"audit, decision and outcome", func() error {
			for range 2 {
				if err := file.Append(t.Context(), audit.Record{Time: time.Now(), Kind: audit.KindDecision}); err != nil {
					return err
				}
			}
			return nil
		}},
		{"write 4: admission, row, outcome, release", func() error { return bare(t, effects, s.stand) }},
	} {
		var all []time.Duration
		for range benchCalls / 2 {
			all = append(all, took(t, part.do))
		}
		fmt.Fprintf(os.Stderr, "%-64s p50 %8.3f ms\n", part.name, at(all, 50))
	}
}

func took(t *testing.T, do func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	must(t, do())
	return time.Since(begin)
}

// at is a percentile in milliseconds.
func at(all []time.Duration, percent int) float64 {
	slices.Sort(all)
	return round(float64(all[min(len(all)-1, len(all)*percent/100)]) / float64(time.Millisecond))
}

func round(f float64) float64 {
	out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', 3, 64), 64)
	return out
}

// rate is how many a second are done by one caller in each of the runs.
func rate(t *testing.T, runs []*rpctest.Stand, do func(*rpctest.Stand) error) float64 {
	t.Helper()
	var n atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for _, r := range runs {
		all.Go(func() {
			for time.Since(begin) < benchFor {
				if err := do(r); err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return round(float64(n.Load()) / time.Since(begin).Seconds())
}
