package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/services/filebroker/internal/files"
)

// StageObject implements [files.Objects]. The quota is counted in the transaction
// that inserts.
func (s *SQLite) StageObject(ctx context.Context, o files.Object, until time.Time, q files.Quota) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		const used = `SELECT count(*), coalesce(sum(size), 0) FROM file_objects WHERE binding_id = ? AND (visible = 1 OR staged_until > ?)`
		var objects int
		var bytes int64
		if err := tx.QueryRowContext(ctx, used, o.BindingID, q.Now.UnixMicro()).Scan(&objects, &bytes); err != nil {
			return err
		}
		if objects >= q.Objects || o.Info.Size > q.Bytes-bytes {
			return files.ErrQuota
		}
		const insert = `INSERT INTO file_objects (id, binding_id, epoch, run_id, size, sha256, mime, name, staged_until, created_at, referenced) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
		_, err := tx.ExecContext(ctx, insert, o.ID, o.BindingID, o.Epoch, o.RunID, o.Info.Size, o.Info.SHA256[:], o.Info.MIME, o.Info.Name, until.UnixMicro(), q.Now.UnixMicro(), o.RunID != "")
		return err
	})
	return named("stage object", err)
}

// SealObject implements [files.Objects].
func (s *SQLite) SealObject(ctx context.Context, id string, i files.Info) error {
	return named("seal object", s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE file_objects SET size = ?, sha256 = ?, mime = ? WHERE id = ? AND visible = 0`, i.Size, i.SHA256[:], i.MIME, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(files.ErrNoObject, err)
		}
		return nil
	}))
}

// Complete implements [files.Objects].
func (s *SQLite) Complete(ctx context.Context, c files.Completion) (stands files.Completion, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stands, err = scanCompletion(tx.QueryRowContext(ctx, findCompletion, c.Slot))
		if !errors.Is(err, files.ErrNoCompletion) {
			return err // the slot is taken, or a failure
		}
		res, err := tx.ExecContext(ctx, `UPDATE file_objects SET visible = 1 WHERE id = ? AND visible = 0`, c.ObjectID)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(files.ErrNoObject, err)
		}
		stands = c
		_, err = tx.ExecContext(ctx, `INSERT INTO file_completions (slot, key, args_digest, object_id) VALUES (?, ?, ?, ?)`, c.Slot, c.Key, c.ArgsDigest, c.ObjectID)
		return err
	})
	if err != nil {
		return files.Completion{}, named("complete object", err)
	}
	return stands, nil
}

// Completed implements [files.Objects].
func (s *SQLite) Completed(ctx context.Context, slot string) (files.Completion, error) {
	return scanCompletion(s.db.QueryRow(ctx, findCompletion, slot))
}

// DropObject implements [files.Objects].
func (s *SQLite) DropObject(ctx context.Context, id string) (dropped bool, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM file_objects WHERE id = ? AND visible = 0`, id)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		dropped = n > 0
		return err
	})
	if err != nil {
		return false, named("drop object", err)
	}
	return dropped, nil
}

// Object implements [files.Objects].
func (s *SQLite) Object(ctx context.Context, id string) (files.Object, error) {
	const find = `SELECT id, binding_id, epoch, run_id, size, sha256, mime, name FROM file_objects WHERE id = ? AND visible = 1`
	var o files.Object
	var sum []byte
	err := s.db.QueryRow(ctx, find, id).Scan(&o.ID, &o.BindingID, &o.Epoch, &o.RunID, &o.Info.Size, &sum, &o.Info.MIME, &o.Info.Name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return files.Object{}, files.ErrNoObject
	case err != nil:
		return files.Object{}, named("find object", err)
	case copy(o.Info.SHA256[:], sum) != len(o.Info.SHA256) || len(sum) != len(o.Info.SHA256):
		return files.Object{}, errors.New("find object: digest is damaged")
	}
	return o, nil
}

const findCompletion = `SELECT slot, key, args_digest, object_id FROM file_completions WHERE slot = ?`

func scanCompletion(row *sql.Row) (c files.Completion, err error) {
	err = row.Scan(&c.Slot, &c.Key, &c.ArgsDigest, &c.ObjectID)
	if errors.Is(err, sql.ErrNoRows) {
		return files.Completion{}, files.ErrNoCompletion
	}
	return c, named("find completion", err)
}

func named(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}
