package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/services/filebroker/internal/files"
)

// handle is the stored form of a files.Handle. A run is a scope, whose slots are
// the bound of its handles.
type handle struct {
	ID         string `bson:"_id"`
	Scope      string `bson:"scope"`
	Slot       int32  `bson:"slot"`
	BindingID  string `bson:"binding"`
	Epoch      int64  `bson:"epoch"`
	Generation int64  `bson:"generation"`
	RunID      string `bson:"run"`
	Direction  string `bson:"direction"`
	ObjectID   string `bson:"object"`
	MaxBytes   int64  `bson:"max_bytes"`
	ExpiresAt  int64  `bson:"expires_at"` // Unix microseconds
	Issue      string `bson:"issue"`
	ArgsDigest string `bson:"args"`
	Confirmed  bool   `bson:"confirmed"`
	SingleUse  bool   `bson:"single_use"`
	// Types are separated by spaces.
	Types  string `bson:"types"`
	UsedBy string `bson:"used_by"`
	// Contents have 32 bytes each.
	Contents []byte `bson:"contents,omitempty"`
}

func (h handle) handle() files.Handle {
	return files.Handle{
		ID: h.ID, BindingID: h.BindingID, Epoch: uint32(h.Epoch), Generation: uint32(h.Generation), RunID: h.RunID, //nolint:gosec // written from a uint32
		Direction: files.Direction(h.Direction), ObjectID: h.ObjectID, MaxBytes: h.MaxBytes,
		ExpiresAt: time.UnixMicro(h.ExpiresAt).UTC(), Issue: h.Issue, ArgsDigest: h.ArgsDigest,
		SingleUse: h.SingleUse, Types: h.Types, Contents: string(h.Contents),
	}
}

// StageHandle implements [files.Handles].
func (s *Store) StageHandle(ctx context.Context, h files.Handle, most int) (stands files.Handle, err error) {
	d := handle{
		ID: h.ID, Scope: fmt.Sprintf("%s/%d/%s", h.BindingID, h.Epoch, h.RunID),
		BindingID: h.BindingID, Epoch: int64(h.Epoch), Generation: int64(h.Generation), RunID: h.RunID,
		Direction: string(h.Direction), ObjectID: h.ObjectID, MaxBytes: h.MaxBytes, ExpiresAt: h.ExpiresAt.UnixMicro(),
		Issue: h.Issue, ArgsDigest: h.ArgsDigest, SingleUse: h.SingleUse, Types: h.Types, Contents: []byte(h.Contents),
	}
	_, err = mongodbstore.InsertInSlot(ctx, s.handles, bson.D{is("issue", h.Issue)}, d.Scope, most, func(slot int32) any {
		d.Slot = slot
		return d
	})
	if errors.Is(err, mongodbstore.ErrNoSlot) {
		return files.Handle{}, named("stage handle", files.ErrFull, nil)
	}
	if err != nil {
		return files.Handle{}, named("stage handle", err, nil)
	}
	return s.findHandle(ctx, bson.D{is("issue", h.Issue)})
}

// ConfirmHandle implements [files.Handles].
func (s *Store) ConfirmHandle(ctx context.Context, id string) error {
	res, err := s.handles.UpdateOne(ctx, bson.D{is("_id", id)}, set(is("confirmed", true)))
	if err == nil && res.MatchedCount == 0 {
		err = files.ErrNoHandle
	}
	return named("confirm handle", err, nil)
}

// DropHandle implements [files.Handles].
func (s *Store) DropHandle(ctx context.Context, id string) error {
	_, err := s.handles.DeleteOne(ctx, bson.D{is("_id", id), is("confirmed", false)})
	return named("drop handle", err, nil)
}

// Handle implements [files.Handles].
func (s *Store) Handle(ctx context.Context, id string) (files.Handle, error) {
	return s.findHandle(ctx, bson.D{is("_id", id), is("confirmed", true)})
}

// UseHandle implements [files.Handles].
func (s *Store) UseHandle(ctx context.Context, id, by string) (stands string, err error) {
	_, err = s.handles.UpdateOne(ctx, bson.D{is("_id", id), is("used_by", "")}, set(is("used_by", by)))
	if err != nil {
		return "", named("use handle", err, nil)
	}
	var h handle
	if err := s.handles.FindOne(ctx, bson.D{is("_id", id)}).Decode(&h); err != nil {
		return "", named("use handle", err, files.ErrNoHandle)
	}
	return h.UsedBy, nil
}

func (s *Store) findHandle(ctx context.Context, filter bson.D) (files.Handle, error) {
	var h handle
	if err := s.handles.FindOne(ctx, filter).Decode(&h); err != nil {
		return files.Handle{}, named("find handle", err, files.ErrNoHandle)
	}
	return h.handle(), nil
}
