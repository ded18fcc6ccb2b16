// Package memorystore has the back ends of the memory store. Each passes the
// suite in memorystoretest.
package memorystore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/sqlstore"
	"cofferdam.dev/services/statefacade/internal/memory"
)

const component = "memory"

// SQLite keeps memory in one SQLite file.
type SQLite struct{ db *sqlstore.DB }

var _ memory.Store = (*SQLite)(nil)

// OpenSQLite opens or makes the file.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	db, err := sqlstore.Open(ctx, path, component, migrations)
	if err != nil {
		return nil, err
	}
	return &SQLite{db: db}, nil
}

// Close closes the file.
func (s *SQLite) Close() error { return s.db.Close() }

// Check asks whether the file answers, with the version that is known here.
func (s *SQLite) Check(ctx context.Context) error { return s.db.Check(ctx) }

// there is the condition for a record that exists; its argument is now.
const there = `deleted = 0 AND (expires_at = 0 OR expires_at > ?)`

// Get implements [memory.Store].
func (s *SQLite) Get(ctx context.Context, namespace, key string, now time.Time) (memory.Record, error) {
	const query = `SELECT kind, content_type, content, revision, sha256, updated_at, retention, expires_at, redactions,
		binding_id, epoch, generation, run_id, writer, previous, sources, approved
		FROM memory_records WHERE namespace = ? AND key = ? AND ` + there
	r := memory.Record{Key: key}
	var f fields
	err := s.db.QueryRow(ctx, query, namespace, key, now.UnixMicro()).Scan(append([]any{&r.Kind, &r.ContentType, &r.Content}, f.into(&r)...)...)
	if err == nil {
		err = f.finish(&r)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return memory.Record{}, memory.ErrNotFound
	case err != nil:
		return memory.Record{}, fmt.Errorf("get memory: %w", err)
	}
	return r, nil
}

// fields are those that a record and its audit have in common, as SQLite keeps
// them.
type fields struct {
	sum         []byte
	at, expires int64
	sources     []byte
}

func (f *fields) into(r *memory.Record) []any {
	o := &r.Origin
	return []any{
		&r.Revision, &f.sum, &f.at, &r.Retention, &f.expires, &r.Redactions,
		&o.BindingID, &o.Epoch, &o.Generation, &o.RunID, &o.Writer, &o.Previous, &f.sources, &o.ApprovedCall,
	}
}

func (f *fields) finish(r *memory.Record) error {
	if len(f.sum) > 0 && copy(r.SHA256[:], f.sum) != len(r.SHA256) || len(f.sum) > len(r.SHA256) {
		return errors.New("digest is damaged")
	}
	r.UpdatedAt, r.ExpiresAt = fromMicro(f.at), fromMicro(f.expires)
	if err := json.Unmarshal(f.sources, &r.Origin.Sources); err != nil {
		return errors.New("sources are damaged")
	}
	return nil
}

// Expired implements [memory.Store].
func (s *SQLite) Expired(ctx context.Context, now time.Time, limit int) ([]memory.Address, error) {
	rows, err := s.db.Reader().QueryContext(ctx, `SELECT namespace, key, revision, kind FROM memory_records
		WHERE deleted = 0 AND expires_at > 0 AND expires_at <= ? ORDER BY expires_at, namespace, key LIMIT ?`, now.UnixMicro(), limit)
	if err != nil {
		return nil, fmt.Errorf("expired memory: %w", err)
	}
	return collect(rows, "expired memory", func(rows *sql.Rows) (a memory.Address, err error) {
		return a, rows.Scan(&a.Namespace, &a.Key, &a.Revision, &a.Kind)
	})
}

// Forget implements [memory.Store].
func (s *SQLite) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	n := 0
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT namespace, key FROM memory_records WHERE deleted = 1 AND updated_at < ? LIMIT ?`, before.UnixMicro(), limit)
		if err != nil {
			return err
		}
		gone, err := collect(rows, "deleted memory", func(rows *sql.Rows) (a memory.Address, err error) {
			return a, rows.Scan(&a.Namespace, &a.Key)
		})
		if err != nil {
			return err
		}
		n = len(gone)
		for _, a := range gone {
			for _, table := range []string{
				`DELETE FROM memory_changes WHERE namespace = ? AND key = ?`, `DELETE FROM memory_records WHERE namespace = ? AND key = ?`,
			} {
				if _, err := tx.ExecContext(ctx, table, a.Namespace, a.Key); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("forget memory: %w", err)
	}
	return n, nil
}

// Audit implements [memory.Store].
func (s *SQLite) Audit(ctx context.Context, namespace, key string) ([]memory.Entry, error) {
	rows, err := s.db.Reader().QueryContext(ctx, `SELECT id, operation, kind, content_type, revision, sha256, at, retention, expires_at, redactions,
		binding_id, epoch, generation, run_id, writer, previous, sources, approved
		FROM memory_changes WHERE namespace = ? AND key = ? ORDER BY revision`, namespace, key)
	if err != nil {
		return nil, fmt.Errorf("audit of memory: %w", err)
	}
	return collect(rows, "audit of memory", func(rows *sql.Rows) (memory.Entry, error) {
		e := memory.Entry{Record: memory.Record{Key: key}}
		var f fields
		if err := rows.Scan(append([]any{&e.ID, &e.Operation, &e.Record.Kind, &e.Record.ContentType}, f.into(&e.Record)...)...); err != nil {
			return e, err
		}
		return e, f.finish(&e.Record)
	})
}

func collect[T any](rows *sql.Rows, what string, scan func(*sql.Rows) (T, error)) (out []T, err error) {
	defer func() {
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			out, err = nil, fmt.Errorf("%s: %w", what, err)
		}
	}()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// micro is 0 for no time at all.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicro(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
