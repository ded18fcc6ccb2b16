package catalogue

// migrations of the tables, which all begin with file_. Times are Unix
// microseconds.
var migrations = []string{`
CREATE TABLE file_objects (
	id           TEXT PRIMARY KEY,
	binding_id   TEXT NOT NULL,
	epoch        INTEGER NOT NULL,
	run_id       TEXT NOT NULL,
	size         INTEGER NOT NULL,
	sha256       BLOB NOT NULL,
	mime         TEXT NOT NULL,
	name         TEXT NOT NULL,
	visible      INTEGER NOT NULL DEFAULT 0,
	staged_until INTEGER NOT NULL -- until then it counts although it is not visible
) STRICT;
CREATE INDEX file_objects_by_binding ON file_objects (binding_id);
CREATE TABLE file_completions (
	slot        TEXT PRIMARY KEY,
	key         TEXT NOT NULL,
	args_digest TEXT NOT NULL,
	object_id   TEXT NOT NULL
) STRICT;
CREATE TABLE file_handles (
	id          TEXT PRIMARY KEY,
	binding_id  TEXT NOT NULL,
	epoch       INTEGER NOT NULL,
	generation  INTEGER NOT NULL,
	run_id      TEXT NOT NULL,
	direction   TEXT NOT NULL,
	object_id   TEXT NOT NULL,
	max_bytes   INTEGER NOT NULL,
	expires_at  INTEGER NOT NULL,
	issue       TEXT NOT NULL UNIQUE,
	args_digest TEXT NOT NULL,
	confirmed   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX file_handles_by_run ON file_handles (binding_id, epoch, run_id);
`, `
ALTER TABLE file_objects ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE file_objects ADD COLUMN referenced INTEGER NOT NULL DEFAULT 1; -- of what was there before nobody knows
ALTER TABLE file_handles ADD COLUMN single_use INTEGER NOT NULL DEFAULT 0;
ALTER TABLE file_handles ADD COLUMN types TEXT NOT NULL DEFAULT '';
ALTER TABLE file_handles ADD COLUMN used_by TEXT NOT NULL DEFAULT '';
CREATE INDEX file_handles_by_expiry ON file_handles (expires_at);
CREATE INDEX file_completions_by_object ON file_completions (object_id);
CREATE TABLE file_uploads (
	handle     TEXT PRIMARY KEY,
	parts      INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	document   BLOB NOT NULL -- a JSON files.PartialUpload
) STRICT;
CREATE INDEX file_uploads_by_expiry ON file_uploads (expires_at);
`, `
ALTER TABLE file_handles ADD COLUMN contents BLOB NOT NULL DEFAULT x''; -- 32 bytes each
CREATE TABLE file_contents (
	sha256     BLOB PRIMARY KEY CHECK (length(sha256) = 32),
	size       INTEGER NOT NULL,
	blob       TEXT NOT NULL,
	put_at     INTEGER NOT NULL,
	referenced INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX file_contents_unused ON file_contents (put_at) WHERE referenced = 0;
`}
