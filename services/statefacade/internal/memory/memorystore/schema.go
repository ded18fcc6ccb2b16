package memorystore

// migrations of the tables, which all begin with memory_.
//
// memory_records has one row for each key: the record that stands, or what is
// left of one that was deleted, so that the next one under the key goes on from
// its revision. memory_changes is the audit: one row for each change that was ever
// made, which also answers repeats. Contents stand only in memory_records, so that
// deleting a record deletes its content. memory_words has the words that a record
// is found by; each look at it begins with a namespace. A record's vector goes with
// its row, which every change replaces.
var migrations = []string{`
CREATE TABLE memory_records (
	namespace    TEXT NOT NULL,
	key          TEXT NOT NULL,
	kind         TEXT NOT NULL,
	content_type TEXT NOT NULL,
	content      BLOB NOT NULL,
	revision     INTEGER NOT NULL,
	sha256       BLOB NOT NULL,
	updated_at   INTEGER NOT NULL, -- Unix microseconds
	binding_id   TEXT NOT NULL,
	epoch        INTEGER NOT NULL,
	generation   INTEGER NOT NULL,
	run_id       TEXT NOT NULL,
	writer       TEXT NOT NULL,
	previous     INTEGER NOT NULL,
	PRIMARY KEY (namespace, key)
) STRICT;
CREATE TABLE memory_changes (
	id         TEXT PRIMARY KEY,
	namespace  TEXT NOT NULL,
	key        TEXT NOT NULL,
	revision   INTEGER NOT NULL,
	sha256     BLOB NOT NULL,
	at         INTEGER NOT NULL, -- Unix microseconds
	binding_id TEXT NOT NULL,
	epoch      INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	run_id     TEXT NOT NULL,
	writer     TEXT NOT NULL
) STRICT;
CREATE INDEX memory_changes_by_record ON memory_changes (namespace, key, revision);
`, `
ALTER TABLE memory_records ADD COLUMN deleted    INTEGER NOT NULL DEFAULT 0; -- 1: only what is left
ALTER TABLE memory_records ADD COLUMN retention  TEXT NOT NULL DEFAULT 'keep';
ALTER TABLE memory_records ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0; -- Unix microseconds; 0: never
ALTER TABLE memory_records ADD COLUMN redactions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory_records ADD COLUMN sources    TEXT NOT NULL DEFAULT 'null';
ALTER TABLE memory_records ADD COLUMN approved   TEXT NOT NULL DEFAULT '';
ALTER TABLE memory_records ADD COLUMN words      INTEGER NOT NULL DEFAULT 0;
CREATE INDEX memory_records_by_expiry ON memory_records (expires_at) WHERE deleted = 0 AND expires_at > 0;
CREATE INDEX memory_records_by_deletion ON memory_records (updated_at) WHERE deleted = 1;
ALTER TABLE memory_changes ADD COLUMN operation    TEXT NOT NULL DEFAULT 'put';
ALTER TABLE memory_changes ADD COLUMN kind         TEXT NOT NULL DEFAULT '';
ALTER TABLE memory_changes ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
ALTER TABLE memory_changes ADD COLUMN previous     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory_changes ADD COLUMN retention    TEXT NOT NULL DEFAULT '';
ALTER TABLE memory_changes ADD COLUMN expires_at   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory_changes ADD COLUMN redactions   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory_changes ADD COLUMN sources      TEXT NOT NULL DEFAULT 'null';
ALTER TABLE memory_changes ADD COLUMN approved     TEXT NOT NULL DEFAULT '';
CREATE TABLE memory_words (
	namespace TEXT NOT NULL,
	word      TEXT NOT NULL,
	key       TEXT NOT NULL,
	count     INTEGER NOT NULL,
	PRIMARY KEY (namespace, word, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_words_by_record ON memory_words (namespace, key);
`, `
ALTER TABLE memory_records ADD COLUMN space  TEXT NOT NULL DEFAULT ''; -- of the vector; '' has none
ALTER TABLE memory_records ADD COLUMN vector BLOB NOT NULL DEFAULT x'';
CREATE INDEX memory_records_by_space ON memory_records (space, namespace, key) WHERE deleted = 0;
`}
