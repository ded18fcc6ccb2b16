package sqlitestore

import (
	"context"

	"cofferdam.dev/pkg/binding"
)

// InsertRow implements binding.Ledger.
func (s *Store) InsertRow(ctx context.Context, r binding.Row) (stands binding.Row, err error) {
	err = s.write(ctx, func(t *tx) error {
		_, err := t.exec(s.q[insertRow], r.BindingID, r.Epoch, r.RunID, r.Key, r.Generation, r.Nonce, string(r.State), r.Kind, r.ArgsDigest, r.Outcome, formatTime(r.At))
		if err != nil {
			return err
		}
		stands, err = scanRow(t.row(s.q[readRow], r.BindingID, r.Epoch, r.RunID, r.Key), r.RowKey)
		if err != nil {
			return storeError(t.ctx, "read", err)
		}
		return nil
	})
	return stands, err
}

// SettleRow implements binding.Ledger.
func (s *Store) SettleRow(ctx context.Context, key binding.RowKey, nonce string, to binding.RowState, outcome []byte) (settled bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(s.q[settleRow], string(to), outcome, key.BindingID, key.Epoch, key.RunID, key.Key, nonce)
		settled = n == 1
		return err
	})
	return settled && err == nil, err
}

// LoadRow implements binding.Ledger.
func (s *Store) LoadRow(ctx context.Context, key binding.RowKey) (binding.Row, error) {
	r, err := scanRow(s.q[loadRow].QueryRowContext(ctx, key.BindingID, key.Epoch, key.RunID, key.Key), key)
	if err != nil {
		return binding.Row{}, storeError(ctx, "read", err)
	}
	return r, nil
}

// Rows implements binding.Ledger.
func (s *Store) Rows(ctx context.Context, bindingID string, epoch uint32, runID string) (out []binding.Row, err error) {
	rows, err := s.q[listRows].QueryContext(ctx, bindingID, epoch, runID)
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	defer func() {
		if cerr := rows.Close(); err == nil && cerr != nil {
			err = storeError(ctx, "read", cerr)
		}
	}()
	for rows.Next() {
		r, err := scanRow(rows, binding.RowKey{BindingID: bindingID, Epoch: epoch, RunID: runID})
		if err != nil {
			return nil, storeError(ctx, "read", err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	return out, nil
}

// scanRow reads the columns of selectRow into a row of the given key.
func scanRow(from interface{ Scan(dest ...any) error }, key binding.RowKey) (binding.Row, error) {
	r := binding.Row{RowKey: key}
	var at string
	if err := from.Scan(&r.Key, &r.Generation, &r.Nonce, (*string)(&r.State), &r.Kind, &r.ArgsDigest, &r.Outcome, &at); err != nil {
		return binding.Row{}, err
	}
	var err error
	r.At, err = parseTime(at)
	return r, err
}
