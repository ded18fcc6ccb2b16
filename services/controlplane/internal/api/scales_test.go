package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const (
	// flood is what a worker says before a fault, and again after it.
	flood = 3 << 20
	// mayKeep is what the control plane may keep of it in memory: what is read ahead, a
	// batch, what was committed last, the end of the log, and a page for each reader.
	mayKeep = 5 << 19
	// mayUnwritten is how much of that may be waiting to be written.
	mayUnwritten = 1 << 20
	// deltaBytes is how much a talkative worker says in one event.
	deltaBytes = 16 << 10
)

// scales weigh what lives beside what lived when they were made.
type scales struct {
	empty uint64

	mu  sync.Mutex
	max uint64
	// broken is what else was more than it may be.
	broken error
}

func newScales() *scales { return &scales{empty: living()} }

// living is what was found alive on the heap, and not what came since.
func living() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// weigh notes how much lives now and a moment later: what is only being worked on is
// let go of.
func (d *trouble) weigh(ctx context.Context) {
	if d.scales == nil {
		return
	}
	least := living()
	for range 4 {
		_ = lasting(ctx, 20*time.Millisecond) // sooner where nobody needs it any more
		least = min(least, living())
	}
	d.scales.mu.Lock()
	defer d.scales.mu.Unlock()
	d.scales.max = max(d.scales.max, least)
}

// weighs is weigh, and notes what unwritten says.
func (d *trouble) weighs(ctx context.Context, p *runstest.Play) {
	if d.scales == nil {
		return
	}
	err := d.unwritten(ctx, p)
	d.weigh(ctx)
	d.scales.mu.Lock()
	defer d.scales.mu.Unlock()
	d.scales.broken = errors.Join(d.scales.broken, err)
}

// unwritten fails where more was taken from the worker than is written, and than may
// wait in memory.
func (d *trouble) unwritten(ctx context.Context, p *runstest.Play) error {
	rec, err := d.store.Load(ctx, p.Turn.Envelope.BindingID)
	if err != nil || rec.Run == nil {
		return err
	}
	const few = 8                                                  // what every run says beside
	written := int64(max(rec.Run.EventHead, few)-few) * deltaBytes //nolint:gosec // small
	if waits := d.taken.Load() - written; waits > mayUnwritten {
		return fmt.Errorf("%d bytes were taken and are not written", waits)
	}
	return nil
}

func (s *scales) heaviest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.max, s.empty) - s.empty
}

// shelf is a store in memory whose chunks are files: a log takes no room.
type shelf struct {
	binding.Backend

	folder string

	mu    sync.Mutex
	index map[string][]placed
}

// placed is a chunk from first to next.
type placed struct{ first, next uint64 }

func (s *shelf) file(runID string, first uint64) string {
	return filepath.Join(s.folder, runID+"-"+strconv.FormatUint(first, 10))
}

// PutChunk implements binding.Log.
func (s *shelf) PutChunk(_ context.Context, c binding.Chunk) (binding.Chunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.index[c.RunID], c.First, func(p placed, first uint64) int { return int(p.first) - int(first) }) //nolint:gosec // small
	if found {
		return s.read(c.RunID, c.First)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return binding.Chunk{}, err
	}
	if err := os.WriteFile(s.file(c.RunID, c.First), raw, 0o600); err != nil {
		return binding.Chunk{}, err
	}
	if s.index == nil {
		s.index = map[string][]placed{}
	}
	s.index[c.RunID] = slices.Insert(s.index[c.RunID], at, placed{c.First, c.Next()})
	return c, nil
}

func (s *shelf) read(runID string, first uint64) (c binding.Chunk, err error) {
	raw, err := os.ReadFile(s.file(runID, first))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(raw, &c)
}

// Chunks implements binding.Log.
func (s *shelf) Chunks(_ context.Context, runID string, from uint64, limit int) (out []binding.Chunk, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.index[runID] {
		if p.next <= from || len(out) == limit {
			continue
		}
		c, err := s.read(runID, p.first)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
