package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"cofferdam.dev/services/filebroker/internal/files"
)

const handleColumns = `id, binding_id, epoch, generation, run_id, direction, object_id, max_bytes, expires_at, issue, args_digest, single_use, types, contents`

// StageHandle implements [files.Handles]. The bound is counted in the insert.
func (s *SQLite) StageHandle(ctx context.Context, h files.Handle, most int) (stands files.Handle, err error) {
	const insert = `INSERT INTO file_handles (` + handleColumns + `)
		SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
		WHERE (SELECT count(*) FROM file_handles WHERE binding_id = ? AND epoch = ? AND run_id = ?) < ?
		ON CONFLICT (issue) DO NOTHING`
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insert,
			h.ID, h.BindingID, h.Epoch, h.Generation, h.RunID, string(h.Direction), h.ObjectID, h.MaxBytes, h.ExpiresAt.UnixMicro(), h.Issue, h.ArgsDigest, h.SingleUse, h.Types, []byte(h.Contents),
			h.BindingID, h.Epoch, h.RunID, most)
		if err != nil {
			return err
		}
		stands, err = scanHandle(tx.QueryRowContext(ctx, `SELECT `+handleColumns+` FROM file_handles WHERE issue = ?`, h.Issue))
		if errors.Is(err, files.ErrNoHandle) { // neither inserted nor there
			return files.ErrFull
		}
		return err
	})
	if err != nil {
		return files.Handle{}, named("stage handle", err)
	}
	return stands, nil
}

// ConfirmHandle implements [files.Handles].
func (s *SQLite) ConfirmHandle(ctx context.Context, id string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE file_handles SET confirmed = 1 WHERE id = ?`, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return files.ErrNoHandle
	})
	return named("confirm handle", err)
}

// DropHandle implements [files.Handles].
func (s *SQLite) DropHandle(ctx context.Context, id string) error {
	return named("drop handle", s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM file_handles WHERE id = ? AND confirmed = 0`, id)
		return err
	}))
}

// Handle implements [files.Handles].
func (s *SQLite) Handle(ctx context.Context, id string) (files.Handle, error) {
	return scanHandle(s.db.QueryRow(ctx, `SELECT `+handleColumns+` FROM file_handles WHERE id = ? AND confirmed = 1`, id))
}

// UseHandle implements [files.Handles].
func (s *SQLite) UseHandle(ctx context.Context, id, by string) (stands string, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE file_handles SET used_by = ? WHERE id = ? AND used_by = ''`, by, id); err != nil {
			return err
		}
		err := tx.QueryRowContext(ctx, `SELECT used_by FROM file_handles WHERE id = ?`, id).Scan(&stands)
		if errors.Is(err, sql.ErrNoRows) {
			return files.ErrNoHandle
		}
		return err
	})
	return stands, named("use handle", err)
}

func scanHandle(row *sql.Row) (h files.Handle, err error) {
	var expires int64
	var contents []byte
	err = row.Scan(&h.ID, &h.BindingID, &h.Epoch, &h.Generation, &h.RunID, &h.Direction, &h.ObjectID, &h.MaxBytes, &expires, &h.Issue, &h.ArgsDigest, &h.SingleUse, &h.Types, &contents)
	if errors.Is(err, sql.ErrNoRows) {
		return files.Handle{}, files.ErrNoHandle
	}
	h.ExpiresAt, h.Contents = time.UnixMicro(expires).UTC(), string(contents)
	return h, named("find handle", err)
}
