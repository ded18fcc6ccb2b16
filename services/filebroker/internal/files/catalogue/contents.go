package catalogue

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"time"

	"cofferdam.dev/services/filebroker/internal/files"
)

const contentColumns = `sha256, size, blob, put_at`

// AddContent implements [files.Contents].
func (s *SQLite) AddContent(ctx context.Context, c files.Content) (stands files.Content, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		const insert = `INSERT INTO file_contents (` + contentColumns + `) VALUES (?, ?, ?, ?)
			ON CONFLICT (sha256) DO UPDATE SET put_at = max(put_at, excluded.put_at)`
		if _, err := tx.ExecContext(ctx, insert, c.SHA256[:], c.Size, c.BlobID, c.PutAt.UnixMicro()); err != nil {
			return err
		}
		stands, err = scanContent(tx.QueryRowContext(ctx, findContent, c.SHA256[:]))
		return err
	})
	return stands, named("add content", err)
}

// Content implements [files.Contents].
func (s *SQLite) Content(ctx context.Context, sum [sha256.Size]byte) (files.Content, error) {
	return scanContent(s.db.QueryRow(ctx, findContent, sum[:]))
}

// PutAgain implements [files.Contents].
func (s *SQLite) PutAgain(ctx context.Context, sum [sha256.Size]byte, at time.Time) (c files.Content, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		const again = `UPDATE file_contents SET put_at = max(put_at, ?) WHERE sha256 = ? RETURNING ` + contentColumns
		c, err = scanContent(tx.QueryRowContext(ctx, again, at.UnixMicro(), sum[:]))
		return err
	})
	return c, named("put content again", err)
}

// ReferContents implements [files.Contents]. Where all of them are referred to already
// nothing is written.
func (s *SQLite) ReferContents(ctx context.Context, sums [][sha256.Size]byte) error {
	if missing, err := unreferred(ctx, s.db.Reader(), sums); err != nil || len(missing) == 0 {
		return named("refer to contents", err)
	}
	return named("refer to contents", s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, sum := range sums {
			if _, err := tx.ExecContext(ctx, `UPDATE file_contents SET referenced = 1 WHERE sha256 = ? AND referenced = 0`, sum[:]); err != nil {
				return err
			}
		}
		missing, err := unreferred(ctx, tx, sums)
		if err == nil && len(missing) > 0 {
			return files.ErrNoContent
		}
		return err
	}))
}

// unreferred are those to which nothing refers, or which are not there.
func unreferred(ctx context.Context, in interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, sums [][sha256.Size]byte,
) (out [][sha256.Size]byte, err error) {
	for _, sum := range sums {
		var referenced bool
		err := in.QueryRowContext(ctx, `SELECT referenced FROM file_contents WHERE sha256 = ?`, sum[:]).Scan(&referenced)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if !referenced {
			out = append(out, sum)
		}
	}
	return out, nil
}

// UnusedContents implements [files.Contents].
func (s *SQLite) UnusedContents(ctx context.Context, before time.Time, limit int) (out []files.Content, err error) {
	const find = `SELECT ` + contentColumns + ` FROM file_contents WHERE referenced = 0 AND put_at < ? ORDER BY put_at LIMIT ?`
	rows, err := s.db.Reader().QueryContext(ctx, find, before.UnixMicro(), limit)
	if err != nil {
		return nil, named("list contents", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		c, err := scanContent(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, named("list contents", rows.Err())
}

// RetireContent implements [files.Contents].
func (s *SQLite) RetireContent(ctx context.Context, sum [sha256.Size]byte, before time.Time) (retired bool, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM file_contents WHERE sha256 = ? AND referenced = 0 AND put_at < ?`, sum[:], before.UnixMicro())
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		retired = n > 0
		return err
	})
	return retired && err == nil, named("retire content", err)
}

const findContent = `SELECT ` + contentColumns + ` FROM file_contents WHERE sha256 = ?`

func scanContent(row scanner) (c files.Content, err error) {
	var sum []byte
	var at int64
	err = row.Scan(&sum, &c.Size, &c.BlobID, &at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return files.Content{}, files.ErrNoContent
	case err != nil:
		return files.Content{}, named("find content", err)
	}
	c.SHA256, c.PutAt = [sha256.Size]byte(sum), time.UnixMicro(at).UTC() // the table sees to the length
	return c, nil
}
