package chaosreplicas

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// lookEvery is how often the records are looked at.
const lookEvery = 10 * time.Millisecond

// watch looks at the committed records while all goes on, and remembers how long the
// log of a run was when the run was first seen out of service.
type watch struct {
	db *sql.DB

	mu      sync.Mutex
	retired map[string]uint64 // by run
	// generations are the highest that each binding was seen with.
	generations map[string]uint32
}

// seen is what of a record is looked at.
type seen struct {
	ID         string `json:"id"`
	Generation uint32 `json:"generation"`
	Ending     []struct {
		Run *struct {
			ID        string `json:"id"`
			EventHead uint64 `json:"event_head"`
		} `json:"run"`
	} `json:"ending"`
}

func newWatch(file string) (*watch, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	return &watch{db: db, retired: map[string]uint64{}, generations: map[string]uint32{}}, nil
}

func (w *watch) close() error { return w.db.Close() }

// run looks until ctx ends. A look that fails is missing, and the next one comes.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = w.look(ctx)
		}
	}
}

func (w *watch) look(ctx context.Context) error {
	rows, err := w.db.QueryContext(ctx, `SELECT doc FROM binding_records`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	w.mu.Lock()
	defer w.mu.Unlock()
	for rows.Next() {
		var raw []byte
		var r seen
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		w.generations[r.ID] = max(w.generations[r.ID], r.Generation)
		for _, e := range r.Ending {
			if e.Run == nil {
				continue
			}
			if _, known := w.retired[e.Run.ID]; !known {
				w.retired[e.Run.ID] = e.Run.EventHead
			}
		}
	}
	return rows.Err()
}

// replacements are how many leases there were beyond the first of each binding.
func (w *watch) replacements() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.generations {
		n += int(max(g, 1)) - 1
	}
	return n
}
