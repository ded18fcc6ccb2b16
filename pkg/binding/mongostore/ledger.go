package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/binding"
)

// ledgerRow is the stored form of a binding.Row.
type ledgerRow struct {
	ID string `bson:"_id"`
	// Scope is binding, epoch and run; it has no part that may hold the separator
	// but the last.
	Scope      string `bson:"scope"`
	Key        string `bson:"key"`
	Generation int64  `bson:"generation"`
	Nonce      string `bson:"nonce"`
	State      string `bson:"state"`
	Kind       string `bson:"kind"`
	ArgsDigest string `bson:"args"`
	Outcome    []byte `bson:"outcome"`
	At         string `bson:"at"`
}

func scopeOf(bindingID string, epoch uint32, runID string) string {
	return fmt.Sprintf("%s/%d/%s", bindingID, epoch, runID)
}

func rowID(k binding.RowKey) string { return scopeOf(k.BindingID, k.Epoch, k.RunID) + "/" + k.Key }

func (r ledgerRow) row(k binding.RowKey) (binding.Row, error) {
	at, err := parseTime(r.At)
	k.Key = r.Key
	return binding.Row{
		RowKey: k, Generation: uint32(r.Generation), Nonce: r.Nonce, State: binding.RowState(r.State), Kind: r.Kind, //nolint:gosec // written from a uint32
		ArgsDigest: r.ArgsDigest, Outcome: r.Outcome, At: at,
	}, err
}

// InsertRow implements binding.Ledger.
func (s *Store) InsertRow(ctx context.Context, r binding.Row) (stands binding.Row, err error) {
	_, err = s.ledger.InsertOne(ctx, ledgerRow{
		ID: rowID(r.RowKey), Scope: scopeOf(r.BindingID, r.Epoch, r.RunID), Key: r.Key, Generation: int64(r.Generation), Nonce: r.Nonce,
		State: string(r.State), Kind: r.Kind, ArgsDigest: r.ArgsDigest, Outcome: r.Outcome, At: formatTime(r.At),
	})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return binding.Row{}, storeError(ctx, "insert", err)
	}
	return s.LoadRow(ctx, r.RowKey)
}

// SettleRow implements binding.Ledger.
func (s *Store) SettleRow(ctx context.Context, key binding.RowKey, nonce string, to binding.RowState, outcome []byte) (settled bool, err error) {
	res, err := s.ledger.UpdateOne(ctx,
		bson.D{is("_id", rowID(key)), is("nonce", nonce), is("state", string(binding.RowDispatched))},
		set(bson.D{is("state", string(to)), is("outcome", outcome)}))
	if err != nil {
		return false, storeError(ctx, "update", err)
	}
	return res.MatchedCount == 1, nil
}

// LoadRow implements binding.Ledger.
func (s *Store) LoadRow(ctx context.Context, key binding.RowKey) (binding.Row, error) {
	var r ledgerRow
	if err := s.ledger.FindOne(ctx, bson.D{is("_id", rowID(key))}).Decode(&r); err != nil {
		return binding.Row{}, storeError(ctx, "read", err)
	}
	return r.row(key)
}

// Rows implements binding.Ledger.
func (s *Store) Rows(ctx context.Context, bindingID string, epoch uint32, runID string) ([]binding.Row, error) {
	found, err := s.ledger.Find(ctx, bson.D{is("scope", scopeOf(bindingID, epoch, runID))},
		options.Find().SetSort(only("key")).SetProjection(bson.D{is("outcome", 0)}))
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	var rs []ledgerRow
	if err := found.All(ctx, &rs); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	var out []binding.Row
	for _, r := range rs {
		row, err := r.row(binding.RowKey{BindingID: bindingID, Epoch: epoch, RunID: runID})
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, nil
}
