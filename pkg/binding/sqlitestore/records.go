package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
)

// maxList bounds one page of List.
const maxList = 1000

// Insert implements binding.Records.
func (s *Store) Insert(ctx context.Context, r binding.Record) (stands binding.Record, inserted bool, err error) {
	doc, err := encode(r)
	if err != nil {
		return binding.Record{}, false, err
	}
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(s.q[insertRecord], append([]any{r.ID}, columns(r, doc)...)...)
		if err != nil {
			return err
		}
		if inserted = n == 1; inserted {
			if err := s.setLiveRuns(t, r.ID, nil, liveRuns(r)); err != nil {
				return err
			}
		}
		var raw []byte
		var v, e, g int64
		var run string
		if err := t.row(s.q[readRecord], r.ID).Scan(&v, &e, &g, &run, &raw); err != nil {
			return storeError(t.ctx, "read", err)
		}
		stands = binding.Record{}
		return decode(raw, &stands)
	})
	return stands, inserted && err == nil, err
}

// Load implements binding.Records.
func (s *Store) Load(ctx context.Context, bindingID string) (binding.Record, error) {
	return loadDoc[binding.Record](ctx, s.q[loadRecord], bindingID)
}

// Committed implements binding.Records from the columns beside the document.
func (s *Store) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	c := fence.Committed{BindingID: bindingID}
	var deadline string
	err := s.q[committedState].QueryRowContext(ctx, bindingID).Scan(&c.Epoch, &c.Generation, &c.RunID, &deadline, &c.Owner, &c.Instance)
	if err != nil {
		return fence.Committed{}, storeError(ctx, "read", err)
	}
	if c.RunDeadline, err = parseTime(deadline); err != nil {
		return fence.Committed{}, err
	}
	return c, nil
}

// Update implements binding.Records.
func (s *Store) Update(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	var out binding.Record
	err := s.write(ctx, func(t *tx) error {
		var was row
		if err := t.row(s.q[readRecord], bindingID).Scan(&was.version, &was.epoch, &was.generation, &was.runID, &was.doc); err != nil {
			return storeError(t.ctx, "read", err)
		}
		if !was.matches(f) {
			return binding.ErrFenced
		}
		var r binding.Record
		if err := decode(was.doc, &r); err != nil {
			return err
		}
		before := liveRuns(r)
		if err := change(&r); err != nil {
			return refused{err}
		}
		r.ID = bindingID
		doc, err := encode(r)
		if err != nil {
			return err
		}
		// The filter is in the write itself. The lock is held since the read, so it
		// can only fail if the lock does not do what it should.
		n, err := t.exec(s.q[updateRecord], append(columns(r, doc), bindingID, was.version,
			either(f.Epoch, was.epoch), either(f.Generation, was.generation), either(f.RunID, was.runID))...)
		if err != nil {
			return err
		}
		if n != 1 {
			return binding.ErrFenced
		}
		out = r
		return s.setLiveRuns(t, bindingID, before, liveRuns(r))
	})
	var r refused
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &r):
		return binding.Record{}, r.error
	default:
		return binding.Record{}, err
	}
}

// refused carries the error of a change out of its transaction unchanged.
type refused struct{ error }

type row struct {
	version, epoch, generation int64
	runID                      string
	doc                        []byte
}

func (w row) matches(f binding.Filter) bool {
	return (f.Epoch == nil || int64(*f.Epoch) == w.epoch) &&
		(f.Generation == nil || int64(*f.Generation) == w.generation) &&
		(f.RunID == nil || *f.RunID == w.runID)
}

// either is what the WHERE compares: the filter's value, or the one just read.
func either[F any, W any](filter *F, was W) any {
	if filter != nil {
		return *filter
	}
	return was
}

// columns are the parts of a record that stand beside its document, in the order
// of the statements.
func columns(r binding.Record, doc []byte) []any {
	c := r.Committed()
	busy := 0
	if r.Run != nil || len(r.Ending) > 0 {
		busy = 1
	}
	return []any{c.Epoch, c.Generation, c.RunID, formatTime(c.RunDeadline), c.Owner, c.Instance, busy, doc}
}

// liveRuns are the runs by which FindRun finds the record.
func liveRuns(r binding.Record) []string {
	var ids []string
	if r.Run != nil {
		ids = append(ids, r.Run.ID)
	}
	if e := r.EndingRun(); e != nil {
		ids = append(ids, e.Run.ID)
	}
	return ids
}

func (s *Store) setLiveRuns(t *tx, bindingID string, before, after []string) error {
	if slices.Equal(before, after) {
		return nil
	}
	if _, err := t.exec(s.q[dropLiveRuns], bindingID); err != nil {
		return err
	}
	for _, id := range after {
		if _, err := t.exec(s.q[addLiveRun], id, bindingID); err != nil {
			return err
		}
	}
	return nil
}

// FindRun implements binding.Records.
func (s *Store) FindRun(ctx context.Context, runID string) (bindingID string, err error) {
	if err := s.q[findRun].QueryRowContext(ctx, runID).Scan(&bindingID); err != nil {
		return "", storeError(ctx, "read", err)
	}
	return bindingID, nil
}

// List implements binding.Records. A page has at most 1000.
func (s *Store) List(ctx context.Context, after string, limit int, busy bool) ([]binding.Record, error) {
	st := s.q[listRecords]
	if busy {
		st = s.q[listBusy]
	}
	return loadDocs[binding.Record](ctx, st, after, min(limit, maxList))
}

// loadDoc reads one JSON document.
func loadDoc[T any](ctx context.Context, st *sql.Stmt, args ...any) (T, error) {
	var raw []byte
	var v T
	if err := st.QueryRowContext(ctx, args...).Scan(&raw); err != nil {
		return v, storeError(ctx, "read", err)
	}
	err := decode(raw, &v)
	return v, err
}

func loadDocs[T any](ctx context.Context, st *sql.Stmt, args ...any) (out []T, err error) {
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	defer func() {
		if cerr := rows.Close(); err == nil && cerr != nil {
			err = storeError(ctx, "read", cerr)
		}
	}()
	for rows.Next() {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return nil, storeError(ctx, "read", err)
		}
		var v T
		if err := decode(raw, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	return out, nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("sqlitestore: time: %w", err)
	}
	return t, nil
}
