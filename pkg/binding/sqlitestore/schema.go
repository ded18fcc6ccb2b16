package sqlitestore

// migrations are the versions of the tables: migrations()[n] makes version n+1
// of version n. A file with a newer version is refused, because what this version
// would write could break what the newer one relies on.
func migrations() []string {
	return []string{`
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
`, `
ALTER TABLE binding_runs ADD COLUMN ended_at INTEGER NOT NULL DEFAULT 0; -- Unix microseconds
ALTER TABLE binding_runs ADD COLUMN log_kept INTEGER NOT NULL DEFAULT 1;
UPDATE binding_runs SET ended_at = 1000000 * unixepoch(json_extract(CAST(doc AS TEXT), '$.ended_at'));
CREATE INDEX binding_runs_kept ON binding_runs (ended_at, run_id) WHERE log_kept = 1;
`}
}
