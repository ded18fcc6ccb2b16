package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/openfga/openfga/assets"
	"github.com/openfga/openfga/pkg/storage/sqlite"
	"github.com/pressly/goose/v3"
)

const migrationTimeout = 30 * time.Second

// openDatabase opens the SQLite file with the schema of this OpenFGA.
//
// OpenFGA's own migrate package does the same for every engine it knows and
// links the drivers of all of them; this needs one.
func openDatabase(ctx context.Context, path string) (*sql.DB, error) {
	// SQLite gives its journal files the mode of the main file.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	dsn, err := sqlite.PrepareDSN(path + "?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("migrate: %w", err), db.Close())
	}
	return db, nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	scripts, err := fs.Sub(assets.EmbedMigrations, assets.SqliteMigrationDir)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, scripts)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
