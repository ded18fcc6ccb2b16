package memorystore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
)

// Change implements [memory.Store]. Its transaction holds the write lock from its
// beginning.
func (s *SQLite) Change(ctx context.Context, c memory.Change, most int) (revision uint64, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT revision FROM memory_changes WHERE id = ?`, c.ID).Scan(&revision)
		if !errors.Is(err, sql.ErrNoRows) {
			return err // a repeat, or a failure
		}
		was, err := look(ctx, tx, c.Namespace, c.Record.Key)
		if err != nil {
			return err
		}
		if err := compare(ctx, tx, c, was, most); err != nil {
			return err
		}
		revision = was.revision + 1
		c.Record.Revision, c.Record.Origin.Previous = revision, was.revision
		return write(ctx, tx, c)
	})
	if err != nil {
		return 0, fmt.Errorf("change memory: %w", err)
	}
	return revision, nil
}

// stand is what stands under a key; the zero stand is nothing.
type stand struct {
	revision uint64
	kind     memory.Kind
	deleted  bool
	expires  int64
}

// exists says whether there is a record now.
func (r stand) exists(now time.Time) bool {
	return r.revision > 0 && !r.deleted && (r.expires == 0 || r.expires > now.UnixMicro())
}

func look(ctx context.Context, tx *sql.Tx, namespace, key string) (r stand, err error) {
	err = tx.QueryRowContext(ctx, `SELECT revision, kind, deleted, expires_at FROM memory_records WHERE namespace = ? AND key = ?`, namespace, key).
		Scan(&r.revision, &r.kind, &r.deleted, &r.expires)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, err
}

func compare(ctx context.Context, tx *sql.Tx, c memory.Change, was stand, most int) error {
	now := c.Record.UpdatedAt
	exists := was.exists(now)
	if c.Operation == memory.OpExpire {
		exists = was.revision > 0 && !was.deleted
	}
	switch {
	case !exists && c.Operation != memory.OpPut:
		return memory.ErrNotFound
	case exists && (was.revision != c.Expected || was.kind != c.Replaces), !exists && c.Expected != 0:
		return memory.ErrRevision
	}
	for _, s := range c.Record.Origin.Sources {
		source, err := look(ctx, tx, c.Namespace, s.Key)
		switch {
		case err != nil:
			return err
		case !source.exists(now) || source.revision != s.Revision:
			return memory.ErrSource
		}
	}
	if exists {
		return nil
	}
	return room(ctx, tx, c.Namespace, was.revision == 0, most)
}

// room looks whether there is place for one more record.
func room(ctx context.Context, tx *sql.Tx, namespace string, newKey bool, most int) error {
	var records, keys int
	const query = `SELECT count(*) - coalesce(sum(deleted), 0), count(*) FROM memory_records WHERE namespace = ?`
	if err := tx.QueryRowContext(ctx, query, namespace).Scan(&records, &keys); err != nil {
		return err
	}
	if records >= most || newKey && keys >= most*memory.KeysPerRecord {
		return memory.ErrFull
	}
	return nil
}

func write(ctx context.Context, tx *sql.Tx, c memory.Change) error {
	r, o := c.Record, c.Record.Origin
	sources, err := json.Marshal(o.Sources)
	if err != nil {
		return err
	}
	deleted, sum, content := c.Operation != memory.OpPut, r.SHA256[:], r.Content
	if deleted {
		sum, content = []byte{}, []byte{}
	}
	const record = `INSERT OR REPLACE INTO memory_records (namespace, key, deleted, kind, content_type, content, words,
		revision, sha256, updated_at, retention, expires_at, redactions, binding_id, epoch, generation, run_id, writer, previous, sources, approved)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	const change = `INSERT INTO memory_changes (id, operation, namespace, key, kind, content_type,
		revision, sha256, at, retention, expires_at, redactions, binding_id, epoch, generation, run_id, writer, previous, sources, approved)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	both := []any{
		r.Revision, sum, micro(r.UpdatedAt), r.Retention, micro(r.ExpiresAt), r.Redactions,
		o.BindingID, o.Epoch, o.Generation, o.RunID, o.Writer, o.Previous, string(sources), o.ApprovedCall,
	}
	args := append([]any{c.Namespace, r.Key, deleted, string(r.Kind), r.ContentType, content, c.Words.Words}, both...)
	if _, err := tx.ExecContext(ctx, record, args...); err != nil {
		return err
	}
	args = append([]any{c.ID, string(c.Operation), c.Namespace, r.Key, string(r.Kind), r.ContentType}, both...)
	if _, err := tx.ExecContext(ctx, change, args...); err != nil {
		return err
	}
	return index(ctx, tx, c)
}

// index replaces the words that a record is found by.
func index(ctx context.Context, tx *sql.Tx, c memory.Change) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM memory_words WHERE namespace = ? AND key = ?`, c.Namespace, c.Record.Key); err != nil {
		return err
	}
	if len(c.Words.Counts) == 0 {
		return nil
	}
	counts, err := json.Marshal(c.Words.Counts)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO memory_words (namespace, word, key, count) SELECT ?, key, ?, value FROM json_each(?)`,
		c.Namespace, c.Record.Key, string(counts))
	return err
}
