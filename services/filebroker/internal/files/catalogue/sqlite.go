// Package catalogue has the back ends of the catalogue of objects and handles.
// Each passes the suite in cataloguetest.
package catalogue

import (
	"context"

	"cofferdam.dev/pkg/sqlstore"
	"cofferdam.dev/services/filebroker/internal/files"
)

// SQLite keeps the catalogue in one SQLite file.
type SQLite struct{ db *sqlstore.DB }

var _ files.Catalogue = (*SQLite)(nil)

// OpenSQLite opens or makes the file.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	db, err := sqlstore.Open(ctx, path, "file", migrations)
	if err != nil {
		return nil, err
	}
	return &SQLite{db: db}, nil
}

// Close closes the file.
func (s *SQLite) Close() error { return s.db.Close() }

// Check asks whether the file answers.
func (s *SQLite) Check(ctx context.Context) error { return s.db.Check(ctx) }
