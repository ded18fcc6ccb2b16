package mongostore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/services/filebroker/internal/files"
)

// tombstones are kept so long: no completion comes later.
const tombstones = 24 * time.Hour

// upload is the stored form of a files.PartialUpload.
type upload struct {
	Handle    string `bson:"_id"`
	ObjectID  string `bson:"object"`
	Parts     int32  `bson:"parts"`
	ExpiresAt int64  `bson:"expires_at"` // Unix microseconds
	Document  []byte `bson:"document"`   // JSON
}

func (u upload) upload() (out files.PartialUpload, err error) {
	err = json.Unmarshal(u.Document, &out)
	return out, named("find upload", err, nil)
}

// BeginUpload implements [files.Uploads].
func (s *Store) BeginUpload(ctx context.Context, u files.PartialUpload) (files.PartialUpload, error) {
	document, err := json.Marshal(u)
	if err != nil {
		return files.PartialUpload{}, named("begin upload", err, nil)
	}
	_, err = s.uploads.InsertOne(ctx, upload{Handle: u.Handle, ObjectID: u.ObjectID, ExpiresAt: u.ExpiresAt.UnixMicro(), Document: document})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return files.PartialUpload{}, named("begin upload", err, nil)
	}
	return s.PartialUpload(ctx, u.Handle)
}

// PartialUpload implements [files.Uploads].
func (s *Store) PartialUpload(ctx context.Context, handle string) (files.PartialUpload, error) {
	var u upload
	if err := s.uploads.FindOne(ctx, bson.D{is("_id", handle)}).Decode(&u); err != nil {
		return files.PartialUpload{}, named("find upload", err, files.ErrNoUpload)
	}
	return u.upload()
}

// AppendPart implements [files.Uploads].
func (s *Store) AppendPart(ctx context.Context, u files.PartialUpload, p files.Part) (files.PartialUpload, error) {
	document, err := json.Marshal(u.With(p))
	if err != nil {
		return files.PartialUpload{}, named("append part", err, nil)
	}
	had := len(u.Parts)
	_, err = s.uploads.UpdateOne(ctx, bson.D{is("_id", u.Handle), is("object", u.ObjectID), is("parts", int32(had))}, //nolint:gosec // at most 256
		set(is("parts", int32(had+1)), is("document", document))) //nolint:gosec // at most 256
	if err != nil {
		return files.PartialUpload{}, named("append part", err, nil)
	}
	return s.PartialUpload(ctx, u.Handle)
}

// EndUpload implements [files.Uploads].
func (s *Store) EndUpload(ctx context.Context, handle string) error {
	_, err := s.uploads.DeleteOne(ctx, bson.D{is("_id", handle)})
	return named("end upload", err, nil)
}

// entry is what the collection wants to know of an object.
type entry struct {
	ID          string `bson:"_id"`
	BindingID   string `bson:"binding"`
	Epoch       int64  `bson:"epoch"`
	RunID       string `bson:"run"`
	Visible     bool   `bson:"visible"`
	Referenced  *bool  `bson:"referenced"` // nil of one that was there before it was written
	CreatedAt   int64  `bson:"created_at"`
	StagedUntil int64  `bson:"staged_until"`
}

// Entries implements [files.Collection].
func (s *Store) Entries(ctx context.Context, after string, limit int) ([]files.Entry, error) {
	found, err := s.objects.Find(ctx, bson.D{is("_id", bson.D{is("$gt", after)})},
		options.Find().SetSort(bson.D{is("_id", 1)}).SetLimit(int64(limit)))
	if err != nil {
		return nil, named("list objects", err, nil)
	}
	var all []entry
	if err := found.All(ctx, &all); err != nil {
		return nil, named("list objects", err, nil)
	}
	out := make([]files.Entry, len(all))
	for i, o := range all {
		out[i] = files.Entry{
			Object:  files.Object{ID: o.ID, BindingID: o.BindingID, Epoch: uint32(o.Epoch), RunID: o.RunID}, //nolint:gosec // written from a uint32
			Visible: o.Visible, Referenced: o.Referenced == nil || *o.Referenced,
			CreatedAt: time.UnixMicro(o.CreatedAt).UTC(), StagedUntil: time.UnixMicro(o.StagedUntil).UTC(),
		}
	}
	return out, nil
}

// Known implements [files.Collection].
func (s *Store) Known(ctx context.Context, id string) (bool, error) {
	err := s.objects.FindOne(ctx, bson.D{is("_id", id)}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil, named("look for object", err, nil)
}

// Refer implements [files.Collection].
func (s *Store) Refer(ctx context.Context, id string) error {
	if _, err := s.Object(ctx, id); err != nil { // not a staged one
		return named("refer to object", err, nil)
	}
	res, err := s.objects.UpdateOne(ctx, bson.D{is("_id", id)}, set(is("referenced", true)))
	if err == nil && res.MatchedCount == 0 {
		err = files.ErrNoObject
	}
	return named("refer to object", err, nil)
}

// Retire implements [files.Collection]. Its completion goes after the object: what is
// left of it names nothing that is there.
func (s *Store) Retire(ctx context.Context, id string, unused bool) (bool, error) {
	switch _, err := s.Object(ctx, id); {
	case errors.Is(err, files.ErrNoObject):
		return false, nil
	case err != nil:
		return false, err
	}
	which := bson.D{is("_id", id)}
	if unused {
		which = append(which, is("referenced", false))
	}
	res, err := s.objects.DeleteOne(ctx, which)
	if err != nil || res.DeletedCount == 0 {
		return false, named("retire object", err, nil)
	}
	_, err = s.completions.DeleteMany(ctx, bson.D{is("object", id)})
	return true, named("retire object", err, nil)
}

// ExpiredUploads implements [files.Collection].
func (s *Store) ExpiredUploads(ctx context.Context, before time.Time, limit int) ([]files.PartialUpload, error) {
	found, err := s.uploads.Find(ctx, bson.D{is("expires_at", bson.D{is("$lt", before.UnixMicro())})}, options.Find().SetLimit(int64(limit)))
	if err != nil {
		return nil, named("list uploads", err, nil)
	}
	var all []upload
	if err := found.All(ctx, &all); err != nil {
		return nil, named("list uploads", err, nil)
	}
	out := make([]files.PartialUpload, len(all))
	for i, u := range all {
		if out[i], err = u.upload(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ForgetExpired implements [files.Collection]. Drops go with the handles, later.
func (s *Store) ForgetExpired(ctx context.Context, before time.Time) error {
	_, err := s.handles.DeleteMany(ctx, bson.D{is("expires_at", bson.D{is("$lt", before.UnixMicro())})})
	if err == nil {
		_, err = s.completions.DeleteMany(ctx, bson.D{is("dropped", true), is("at", bson.D{is("$lt", before.Add(-tombstones).UnixMicro())})})
	}
	return named("forget handles", err, nil)
}
