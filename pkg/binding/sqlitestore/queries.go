package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// query is one statement, prepared once for the pool that runs it.
type query int

const (
	loadRecord query = iota
	committedState
	findRun
	listRecords
	listBusy
	loadChunks
	loadRun
	listEnded
	loadRow
	listRows
	readEnd // what follows is prepared on the writer

	insertRecord
	readRecord
	updateRecord
	dropLiveRuns
	addLiveRun
	insertChunk
	readChunk
	insertRun
	forgetRun
	dropChunks
	insertRow
	readRow
	settleRow
	queryEnd
)

var text = [queryEnd]string{
	loadRecord:     `SELECT doc FROM binding_records WHERE id = ?`,
	committedState: `SELECT epoch, generation, run_id, run_deadline, owner, instance FROM binding_records WHERE id = ?`,
	findRun:        `SELECT binding_id FROM binding_live_runs WHERE run_id = ?`,
	listRecords:    `SELECT doc FROM binding_records WHERE id > ? ORDER BY id LIMIT ?`,
	listBusy:       `SELECT doc FROM binding_records WHERE busy = 1 AND id > ? ORDER BY id LIMIT ?`,
	loadChunks:     `SELECT doc FROM binding_chunks WHERE run_id = ? AND next > ? ORDER BY first LIMIT ?`,
	loadRun:        `SELECT doc, log_kept FROM binding_runs WHERE run_id = ?`,
	listEnded: `SELECT run_id, binding_id, ended_at FROM binding_runs
		WHERE log_kept = 1 AND ended_at < ? AND (ended_at, run_id) > (?, ?) ORDER BY ended_at, run_id LIMIT ?`,
	loadRow:  selectRow + ` AND run_id = ? AND key = ?`,
	listRows: `SELECT key, generation, nonce, state, kind, args_digest, NULL, at FROM binding_ledger WHERE binding_id = ? AND epoch = ? AND run_id = ? ORDER BY key`,

	insertRecord: `INSERT INTO binding_records (id, version, epoch, generation, run_id, run_deadline, owner, instance, busy, doc)
		VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
	readRecord: `SELECT version, epoch, generation, run_id, doc FROM binding_records WHERE id = ?`,
	updateRecord: `UPDATE binding_records SET version = version + 1,
		epoch = ?, generation = ?, run_id = ?, run_deadline = ?, owner = ?, instance = ?, busy = ?, doc = ?
		WHERE id = ? AND version = ? AND epoch = ? AND generation = ? AND run_id = ?`,
	dropLiveRuns: `DELETE FROM binding_live_runs WHERE binding_id = ?`,
	addLiveRun:   `INSERT INTO binding_live_runs (run_id, binding_id) VALUES (?, ?)`,
	insertChunk:  `INSERT INTO binding_chunks (run_id, first, next, doc) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
	readChunk:    `SELECT doc FROM binding_chunks WHERE run_id = ? AND first = ?`,
	insertRun:    `INSERT INTO binding_runs (run_id, binding_id, doc, ended_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
	forgetRun:    `UPDATE binding_runs SET log_kept = 0 WHERE run_id = ?`,
	dropChunks:   `DELETE FROM binding_chunks WHERE run_id = ?`,
	insertRow: `INSERT INTO binding_ledger (binding_id, epoch, run_id, key, generation, nonce, state, kind, args_digest, outcome, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
	readRow: selectRow + ` AND run_id = ? AND key = ?`,
	settleRow: `UPDATE binding_ledger SET state = ?, outcome = ?
		WHERE binding_id = ? AND epoch = ? AND run_id = ? AND key = ? AND nonce = ? AND state = 'dispatched'`,
}

const selectRow = `SELECT key, generation, nonce, state, kind, args_digest, outcome, at FROM binding_ledger WHERE binding_id = ? AND epoch = ?`

type queries [queryEnd]*sql.Stmt

func (q *queries) prepare(ctx context.Context, writer, reader *sql.DB) error {
	for i, sqlText := range text {
		if sqlText == "" {
			continue
		}
		db := writer
		if query(i) < readEnd {
			db = reader
		}
		st, err := db.PrepareContext(ctx, sqlText)
		if err != nil {
			return fmt.Errorf("sqlitestore: prepare: %w", err)
		}
		q[i] = st
	}
	return nil
}

func (q *queries) close() error {
	var errs []error
	for _, st := range q {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}

// tx is one write transaction. Its context has no end: see Store.write.
type tx struct {
	ctx context.Context //nolint:containedctx // lives as long as one call of write
	tx  *sql.Tx
}

func (t *tx) row(st *sql.Stmt, args ...any) *sql.Row {
	return t.tx.StmtContext(t.ctx, st).QueryRowContext(t.ctx, args...)
}

// exec runs a statement and gives the number of rows it changed.
func (t *tx) exec(st *sql.Stmt, args ...any) (int64, error) {
	res, err := t.tx.StmtContext(t.ctx, st).ExecContext(t.ctx, args...)
	if err != nil {
		return 0, storeError(t.ctx, "write", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, storeError(t.ctx, "write", err)
	}
	return n, nil
}
