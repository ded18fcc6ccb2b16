package catalogue

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"cofferdam.dev/services/filebroker/internal/files"
)

const findUpload = `SELECT document FROM file_uploads WHERE handle = ?`

// BeginUpload implements [files.Uploads].
func (s *SQLite) BeginUpload(ctx context.Context, u files.PartialUpload) (stands files.PartialUpload, err error) {
	document, err := json.Marshal(u)
	if err != nil {
		return files.PartialUpload{}, named("begin upload", err)
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		const insert = `INSERT INTO file_uploads (handle, parts, expires_at, document) VALUES (?, 0, ?, ?) ON CONFLICT (handle) DO NOTHING`
		if _, err := tx.ExecContext(ctx, insert, u.Handle, u.ExpiresAt.UnixMicro(), document); err != nil {
			return err
		}
		stands, err = scanUpload(tx.QueryRowContext(ctx, findUpload, u.Handle))
		return err
	})
	return stands, named("begin upload", err)
}

// PartialUpload implements [files.Uploads].
func (s *SQLite) PartialUpload(ctx context.Context, handle string) (files.PartialUpload, error) {
	return scanUpload(s.db.QueryRow(ctx, findUpload, handle))
}

// AppendPart implements [files.Uploads].
func (s *SQLite) AppendPart(ctx context.Context, u files.PartialUpload, p files.Part) (stands files.PartialUpload, err error) {
	had := len(u.Parts)
	document, err := json.Marshal(u.With(p))
	if err != nil {
		return files.PartialUpload{}, named("append part", err)
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if stands, err = scanUpload(tx.QueryRowContext(ctx, findUpload, u.Handle)); err != nil || stands.ObjectID != u.ObjectID || len(stands.Parts) != had {
			return err
		}
		stands = u.With(p)
		_, err = tx.ExecContext(ctx, `UPDATE file_uploads SET document = ?, parts = ? WHERE handle = ?`, document, had+1, u.Handle)
		return err
	})
	return stands, named("append part", err)
}

// EndUpload implements [files.Uploads].
func (s *SQLite) EndUpload(ctx context.Context, handle string) error {
	return named("end upload", s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM file_uploads WHERE handle = ?`, handle)
		return err
	}))
}

type scanner interface{ Scan(to ...any) error }

func scanUpload(row scanner) (u files.PartialUpload, err error) {
	var document []byte
	err = row.Scan(&document)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return files.PartialUpload{}, files.ErrNoUpload
	case err == nil:
		err = json.Unmarshal(document, &u)
	}
	return u, named("find upload", err)
}

// Entries implements [files.Collection].
func (s *SQLite) Entries(ctx context.Context, after string, limit int) (out []files.Entry, err error) {
	const find = `SELECT id, binding_id, epoch, run_id, visible, referenced, created_at, staged_until FROM file_objects WHERE id > ? ORDER BY id LIMIT ?`
	rows, err := s.db.Reader().QueryContext(ctx, find, after, limit)
	if err != nil {
		return nil, named("list objects", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e files.Entry
		var created, until int64
		if err := rows.Scan(&e.ID, &e.BindingID, &e.Epoch, &e.RunID, &e.Visible, &e.Referenced, &created, &until); err != nil {
			return nil, named("list objects", err)
		}
		e.CreatedAt, e.StagedUntil = time.UnixMicro(created).UTC(), time.UnixMicro(until).UTC()
		out = append(out, e)
	}
	return out, named("list objects", rows.Err())
}

// Known implements [files.Collection].
func (s *SQLite) Known(ctx context.Context, id string) (bool, error) {
	var n int
	err := s.db.QueryRow(ctx, `SELECT count(*) FROM file_objects WHERE id = ?`, id).Scan(&n)
	return n > 0, named("look for object", err)
}

// Refer implements [files.Collection].
func (s *SQLite) Refer(ctx context.Context, id string) error {
	return named("refer to object", s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE file_objects SET referenced = 1 WHERE id = ? AND visible = 1`, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(files.ErrNoObject, err)
		}
		return nil
	}))
}

// Retire implements [files.Collection].
func (s *SQLite) Retire(ctx context.Context, id string, unused bool) (retired bool, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM file_objects WHERE id = ? AND visible = 1 AND referenced <= ?`, id, !unused)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if retired = n > 0; err != nil || !retired {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM file_completions WHERE object_id = ?`, id)
		return err
	})
	return retired && err == nil, named("retire object", err)
}

// ExpiredUploads implements [files.Collection].
func (s *SQLite) ExpiredUploads(ctx context.Context, before time.Time, limit int) (out []files.PartialUpload, err error) {
	rows, err := s.db.Reader().QueryContext(ctx, `SELECT document FROM file_uploads WHERE expires_at < ? ORDER BY expires_at LIMIT ?`, before.UnixMicro(), limit)
	if err != nil {
		return nil, named("list uploads", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		u, err := scanUpload(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, named("list uploads", rows.Err())
}

// ForgetExpired implements [files.Collection].
func (s *SQLite) ForgetExpired(ctx context.Context, before time.Time) error {
	return named("forget handles", s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM file_handles WHERE expires_at < ?`, before.UnixMicro())
		return err
	}))
}
