package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// schemaVersion is that of the tables below. Other packages may keep tables of
// their own in the same file; all of these begin with binding_.
const schemaVersion = 1

// migrations[n] makes version n+1 of version n.
var migrations = [schemaVersion]string{`
CREATE TABLE binding_records (
	id           TEXT PRIMARY KEY,
	version      INTEGER NOT NULL, -- rises with each write of the row
	epoch        INTEGER NOT NULL,
	generation   INTEGER NOT NULL,
	run_id       TEXT NOT NULL,    -- '' without an active run
	run_deadline TEXT NOT NULL,
	owner        TEXT NOT NULL,
	instance     TEXT NOT NULL,
	busy         INTEGER NOT NULL, -- has a run, or something ending
	doc          BLOB NOT NULL     -- the whole record as JSON
) STRICT;
CREATE INDEX binding_records_busy ON binding_records (id) WHERE busy = 1;
CREATE TABLE binding_live_runs (
	run_id     TEXT PRIMARY KEY,
	binding_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX binding_live_runs_binding ON binding_live_runs (binding_id);
CREATE TABLE binding_chunks (
	run_id TEXT NOT NULL,
	first  INTEGER NOT NULL,
	next   INTEGER NOT NULL,
	doc    BLOB NOT NULL,
	PRIMARY KEY (run_id, first)
) STRICT;
CREATE TABLE binding_runs (
	run_id     TEXT PRIMARY KEY,
	binding_id TEXT NOT NULL,
	doc        BLOB NOT NULL
) STRICT;
CREATE TABLE binding_ledger (
	binding_id  TEXT NOT NULL,
	epoch       INTEGER NOT NULL,
	run_id      TEXT NOT NULL,
	key         TEXT NOT NULL,
	generation  INTEGER NOT NULL,
	nonce       TEXT NOT NULL,
	state       TEXT NOT NULL,
	kind        TEXT NOT NULL,
	args_digest TEXT NOT NULL,
	outcome     BLOB,
	at          TEXT NOT NULL,
	PRIMARY KEY (binding_id, epoch, run_id, key)
) STRICT;
`}

// migrate brings the file to this version, in one transaction: of several
// processes that open it at once one does it. A newer file is refused, because
// what this version would write could break what the newer one relies on.
func migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return storeError(ctx, "begin", err)
	}
	if err := migrateTx(ctx, tx); err != nil {
		return errors.Join(err, rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return storeError(ctx, "commit", err)
	}
	return nil
}

func migrateTx(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS binding_schema (version INTEGER NOT NULL) STRICT"); err != nil {
		return storeError(ctx, "schema", err)
	}
	var version int
	err := tx.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM binding_schema").Scan(&version)
	switch {
	case err != nil:
		return storeError(ctx, "schema version", err)
	case version > schemaVersion:
		return fmt.Errorf("sqlitestore: the file has schema version %d and this program knows up to %d; "+
			"start the newer program, or restore the file from before it", version, schemaVersion)
	case version == schemaVersion:
		return nil
	}
	for _, m := range migrations[version:] {
		if _, err := tx.ExecContext(ctx, m); err != nil {
			return storeError(ctx, "migrate", err)
		}
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM binding_schema")
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO binding_schema (version) VALUES (?)", schemaVersion)
	}
	if err != nil {
		return storeError(ctx, "schema version", err)
	}
	return nil
}
