package mongostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
)

const (
	// maxList bounds one page of List.
	maxList = 1000
	// updates is how often an update is tried again that another one overtook.
	updates = 256
)

// record is the stored form of a binding.Record.
type record struct {
	ID      string `bson:"_id"`
	Version int64  `bson:"version"`
	// Nonce of the write that made this version.
	Nonce       string   `bson:"nonce"`
	Epoch       int64    `bson:"epoch"`
	Generation  int64    `bson:"generation"`
	RunID       string   `bson:"run"`
	RunDeadline string   `bson:"deadline"`
	Owner       string   `bson:"owner"`
	Instance    string   `bson:"instance"`
	Busy        bool     `bson:"busy"`
	Live        []string `bson:"live"`
	Doc         []byte   `bson:"doc"`
}

func stored(r binding.Record, version int64) (record, error) {
	doc, err := encode(r)
	if err != nil {
		return record{}, err
	}
	c := r.Committed()
	out := record{
		ID: r.ID, Version: version, Nonce: rand.Text(), Epoch: int64(c.Epoch), Generation: int64(c.Generation), RunID: c.RunID,
		RunDeadline: formatTime(c.RunDeadline), Owner: c.Owner, Instance: c.Instance,
		Busy: r.Run != nil || len(r.Ending) > 0, Live: []string{}, Doc: doc,
	}
	if r.Run != nil {
		out.Live = append(out.Live, r.Run.ID)
	}
	if e := r.EndingRun(); e != nil {
		out.Live = append(out.Live, e.Run.ID)
	}
	return out, nil
}

func (r record) matches(f binding.Filter) bool {
	return (f.Epoch == nil || int64(*f.Epoch) == r.Epoch) &&
		(f.Generation == nil || int64(*f.Generation) == r.Generation) &&
		(f.RunID == nil || *f.RunID == r.RunID)
}

// Insert implements binding.Records.
func (s *Store) Insert(ctx context.Context, r binding.Record) (stands binding.Record, inserted bool, err error) {
	doc, err := stored(r, 1)
	if err != nil {
		return binding.Record{}, false, err
	}
	if _, err = s.bindings.InsertOne(ctx, doc); err != nil && !mongo.IsDuplicateKeyError(err) {
		return binding.Record{}, false, storeError(ctx, "insert", err)
	}
	// A key that is there may be this very insert, repeated by the driver.
	now, err := s.read(ctx, r.ID)
	if err != nil {
		return binding.Record{}, false, err
	}
	err = decode(now.Doc, &stands)
	return stands, err == nil && now.Nonce == doc.Nonce, err
}

func (s *Store) read(ctx context.Context, bindingID string) (record, error) {
	var r record
	if err := s.bindings.FindOne(ctx, bson.D{is("_id", bindingID)}).Decode(&r); err != nil {
		return record{}, storeError(ctx, "read", err)
	}
	return r, nil
}

// Load implements binding.Records.
func (s *Store) Load(ctx context.Context, bindingID string) (binding.Record, error) {
	r, err := s.read(ctx, bindingID)
	if err != nil {
		return binding.Record{}, err
	}
	var out binding.Record
	err = decode(r.Doc, &out)
	return out, err
}

// Committed implements binding.Records from the fields beside the document.
func (s *Store) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	var r record
	err := s.bindings.FindOne(ctx, bson.D{is("_id", bindingID)},
		options.FindOne().SetProjection(only("epoch", "generation", "run", "deadline", "owner", "instance"))).Decode(&r)
	if err != nil {
		return fence.Committed{}, storeError(ctx, "read", err)
	}
	c := fence.Committed{
		BindingID: bindingID, Epoch: uint32(r.Epoch), Generation: uint32(r.Generation), RunID: r.RunID, //nolint:gosec // written from a uint32
		Owner: r.Owner, Instance: r.Instance,
	}
	c.RunDeadline, err = parseTime(r.RunDeadline)
	return c, err
}

// Update implements binding.Records. One that another update overtook is tried
// again on what stands then.
func (s *Store) Update(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	for range updates {
		out, written, err := s.update(ctx, bindingID, f, change)
		if written || err != nil {
			return out, err
		}
	}
	return binding.Record{}, fmt.Errorf("mongostore: update: overtaken %d times: %w", updates, errBusy)
}

var errBusy = errors.New("the record changes too fast")

func (s *Store) update(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (out binding.Record, written bool, err error) {
	was, err := s.read(ctx, bindingID)
	if err != nil {
		return out, false, err
	}
	if !was.matches(f) {
		return out, false, binding.ErrFenced
	}
	var r binding.Record
	if err := decode(was.Doc, &r); err != nil {
		return out, false, err
	}
	if err := change(&r); err != nil {
		return out, false, err
	}
	r.ID = bindingID
	next, err := stored(r, was.Version+1)
	if err != nil {
		return out, false, err
	}
	// The filter is in the write itself, and so is the version that change saw.
	res, err := s.bindings.UpdateOne(ctx, bson.D{
		is("_id", bindingID), is("version", was.Version), is("epoch", was.Epoch), is("generation", was.Generation), is("run", was.RunID),
	}, set(bson.D{
		is("version", next.Version), is("nonce", next.Nonce), is("epoch", next.Epoch), is("generation", next.Generation), is("run", next.RunID),
		is("deadline", next.RunDeadline), is("owner", next.Owner), is("instance", next.Instance), is("busy", next.Busy), is("live", next.Live), is("doc", next.Doc),
	}))
	if err != nil {
		return out, false, storeError(ctx, "update", err)
	}
	if res.MatchedCount == 1 {
		return r, true, nil
	}
	// It may be this very update, repeated by the driver on a server that does not
	// keep the answers to writes.
	now, err := s.read(ctx, bindingID)
	if err != nil {
		return out, false, err
	}
	return r, now.Nonce == next.Nonce, nil
}

// FindRun implements binding.Records.
func (s *Store) FindRun(ctx context.Context, runID string) (bindingID string, err error) {
	var r record
	err = s.bindings.FindOne(ctx, bson.D{is("live", runID)}, options.FindOne().SetProjection(only("_id"))).Decode(&r)
	if err != nil {
		return "", storeError(ctx, "read", err)
	}
	return r.ID, nil
}

// List implements binding.Records. A page has at most 1000.
func (s *Store) List(ctx context.Context, after string, limit int, busy bool) ([]binding.Record, error) {
	filter := bson.D{is("_id", bson.D{is("$gt", after)})}
	if busy {
		filter = append(filter, is("busy", true))
	}
	found, err := s.bindings.Find(ctx, filter, options.Find().SetSort(only("_id")).SetLimit(int64(min(limit, maxList))))
	if err != nil {
		return nil, storeError(ctx, "read", err)
	}
	var rs []record
	if err := found.All(ctx, &rs); err != nil {
		return nil, storeError(ctx, "read", err)
	}
	out := make([]binding.Record, 0, len(rs))
	for _, r := range rs {
		var v binding.Record
		if err := decode(r.Doc, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("mongostore: time: %w", err)
	}
	return t, nil
}
