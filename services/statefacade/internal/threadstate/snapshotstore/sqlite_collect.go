package snapshotstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// List implements [threadstate.Collection].
func (s *SQLite) List(ctx context.Context, bindingID string) (all []threadstate.Entry, err error) {
	err = s.each(ctx, func(rows *sql.Rows) error {
		e, err := scan(rows)
		all = append(all, e)
		return err
	}, `SELECT `+columns+` FROM thread_snapshots WHERE binding_id = ? ORDER BY created_at, ref`, bindingID)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return all, nil
}

// Remove implements [threadstate.Collection].
func (s *SQLite) Remove(ctx context.Context, ref string) error {
	return s.exec(ctx, "remove snapshot", `DELETE FROM thread_snapshots WHERE ref = ?`, ref)
}

// Unsettled implements [threadstate.Collection].
func (s *SQLite) Unsettled(ctx context.Context, before time.Time, after string, limit int) (ids []string, err error) {
	err = s.each(ctx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT DISTINCT binding_id FROM thread_snapshots WHERE settled = 0 AND created_at < ? AND binding_id > ? ORDER BY binding_id LIMIT ?`,
		before.UnixMicro(), after, limit)
	if err != nil {
		return nil, fmt.Errorf("find unsettled snapshots: %w", err)
	}
	return ids, nil
}

// Settle implements [threadstate.Collection].
func (s *SQLite) Settle(ctx context.Context, ref string) error {
	return s.exec(ctx, "settle snapshot", `UPDATE thread_snapshots SET settled = 1 WHERE ref = ?`, ref)
}

func (s *SQLite) exec(ctx context.Context, step, statement string, args ...any) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (s *SQLite) each(ctx context.Context, row func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.db.Reader().QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
