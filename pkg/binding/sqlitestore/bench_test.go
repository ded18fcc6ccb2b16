package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/fence"
)

// active is a store with n bindings, each with an active run.
func active(b *testing.B, n int) (*sqlitestore.Store, []fence.Envelope) {
	b.Helper()
	s := opened(b, filepath.Join(b.TempDir(), "b.db"))
	w := binding.NewWriter(s, time.Now)
	var out []fence.Envelope
	for i := range n {
		id := fmt.Sprint("hs_", i)
		insert(b, s, id)
		if _, err := w.Replace(b.Context(), id, 1, 0, func(g uint32) string { return binding.ClaimName(id, g) }, ""); err != nil {
			b.Fatal(err)
		}
		run := binding.RunID(id, 1, "k")
		_, err := w.Start(b.Context(), binding.StartParams{BindingID: id, RunID: run, Epoch: 1, Deadline: time.Now().Add(time.Hour), Owner: "o"})
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, fence.Envelope{BindingID: id, Epoch: 1, Generation: 1, RunID: run, Deadline: time.Now().Add(time.Hour)})
	}
	return s, out
}

func grant(b *testing.B, s *sqlitestore.Store, e fence.Envelope) fence.Grant {
	b.Helper()
	g, err := fence.NewGuard(binding.NewWriter(s, time.Now), time.Now).Admit(b.Context(), e)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// BenchmarkAdmitSQLite is the fence at the door of every request.
func BenchmarkAdmitSQLite(b *testing.B) {
	s, envs := active(b, 16)
	guard := fence.NewGuard(binding.NewWriter(s, time.Now), time.Now)
	var n atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		e := envs[n.Add(1)%16]
		for pb.Next() {
			if _, err := guard.Admit(b.Context(), e); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkAppendSQLite commits one batch of four events of 300 bytes.
func BenchmarkAppendSQLite(b *testing.B) {
	for _, runs := range []int{1, 16} {
		b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
			s, envs := active(b, runs)
			w := binding.NewWriter(s, time.Now)
			event := json.RawMessage(`{"type":"text.delta","delta":"` + strings.Repeat("x", 270) + `"}`)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, e := range envs {
				wg.Go(func() {
					g := grant(b, s, e)
					next := uint64(0)
					for left.Add(-1) >= 0 {
						h, err := w.Append(b.Context(), g, "o", binding.Batch{Nonce: rand.Text(), First: next, Events: []json.RawMessage{event, event, event, event}})
						if err != nil {
							b.Error(err)
							return
						}
						next = h
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkEffectSQLite is the whole of write 4 around an effect that costs
// nothing: four commits.
func BenchmarkEffectSQLite(b *testing.B) {
	s, envs := active(b, 1)
	e := binding.NewEffects(binding.NewWriter(s, time.Now))
	g := grant(b, s, envs[0])
	b.ReportAllocs()
	for b.Loop() {
		_, err := e.Do(b.Context(), g, binding.Effect{Key: rand.Text(), Kind: "tool", ArgsDigest: "a"}, func(context.Context) ([]byte, error) { return nil, nil })
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
}
