package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/services/filebroker/internal/files"
)

// object is the stored form of a files.Object.
type object struct {
	ID        string `bson:"_id"`
	BindingID string `bson:"binding"`
	Epoch     int64  `bson:"epoch"`
	RunID     string `bson:"run"`
	Size      int64  `bson:"size"`
	SHA256    []byte `bson:"sha256"`
	MIME      string `bson:"mime"`
	Name      string `bson:"name"`
	// Reserved says that it counts, until StagedUntil (Unix microseconds), or for
	// good once it is visible.
	Reserved    bool  `bson:"reserved"`
	StagedUntil int64 `bson:"staged_until"`
	Visible     bool  `bson:"visible"`
	// CreatedAt is in Unix microseconds. Where Referenced is missing the object was
	// there before anybody wrote it, and counts as referred to.
	CreatedAt  int64 `bson:"created_at"`
	Referenced bool  `bson:"referenced"`
}

func (o object) object() (files.Object, error) {
	out := files.Object{
		ID: o.ID, BindingID: o.BindingID, Epoch: uint32(o.Epoch), RunID: o.RunID, //nolint:gosec // written from a uint32
		Info: files.Info{Content: blob.Content{Size: o.Size}, MIME: o.MIME, Name: o.Name},
	}
	if copy(out.Info.SHA256[:], o.SHA256) != len(out.Info.SHA256) || len(o.SHA256) != len(out.Info.SHA256) {
		return files.Object{}, errors.New("find object: digest is damaged")
	}
	return out, nil
}

// completion is the stored form of a files.Completion, or of the drop of an object.
type completion struct {
	Slot       string `bson:"_id"`
	Key        string `bson:"key"`
	ArgsDigest string `bson:"args"`
	ObjectID   string `bson:"object"`
	Dropped    bool   `bson:"dropped"`
	// At is when it was dropped, in Unix microseconds.
	At int64 `bson:"at,omitempty"`
}

// StageObject implements [files.Objects].
func (s *Store) StageObject(ctx context.Context, o files.Object, until time.Time, q files.Quota) error {
	_, err := s.objects.InsertOne(ctx, object{
		ID: o.ID, BindingID: o.BindingID, Epoch: int64(o.Epoch), RunID: o.RunID, Size: o.Info.Size, SHA256: o.Info.SHA256[:],
		MIME: o.Info.MIME, Name: o.Info.Name, StagedUntil: until.UnixMicro(), CreatedAt: q.Now.UnixMicro(), Referenced: o.RunID != "",
	})
	// Its id is random, so one that stands is what this very call inserted,
	// repeated by the driver.
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return named("stage object", err, nil)
	}
	err = s.reserve(ctx, o, q)
	if errors.Is(err, files.ErrQuota) {
		_, derr := s.objects.DeleteOne(ctx, bson.D{is("_id", o.ID)})
		err = errors.Join(err, derr)
	}
	return named("stage object", err, nil)
}

// SealObject implements [files.Objects]. Who completes an object has sealed it
// before, so that visible tells well enough.
func (s *Store) SealObject(ctx context.Context, id string, i files.Info) error {
	res, err := s.objects.UpdateOne(ctx, bson.D{is("_id", id), is("visible", false)},
		set(is("size", i.Size), is("sha256", i.SHA256[:]), is("mime", i.MIME)))
	if err == nil && res.MatchedCount == 0 {
		err = files.ErrNoObject
	}
	return named("seal object", err, nil)
}

// Complete implements [files.Objects].
func (s *Store) Complete(ctx context.Context, c files.Completion) (stands files.Completion, err error) {
	// Without this look the completion of an object that never was would take the
	// slot. It decides nothing else: an object that goes after it has its drop.
	err = s.objects.FindOne(ctx, bson.D{is("_id", c.ObjectID)}).Err()
	switch {
	case err == nil:
		_, err = s.completions.InsertOne(ctx, completion{Slot: c.Slot, Key: c.Key, ArgsDigest: c.ArgsDigest, ObjectID: c.ObjectID})
		if err != nil && !mongo.IsDuplicateKeyError(err) {
			return files.Completion{}, named("complete object", err, nil)
		}
	case !errors.Is(err, mongo.ErrNoDocuments):
		return files.Completion{}, named("complete object", err, nil)
	}
	stands, err = s.Completed(ctx, c.Slot)
	if errors.Is(err, files.ErrNoCompletion) { // the object is gone, or has another slot
		return files.Completion{}, named("complete object", files.ErrNoObject, nil)
	}
	if err != nil {
		return files.Completion{}, err
	}
	return stands, named("complete object", s.show(ctx, stands.ObjectID), nil)
}

// show repeats in the object that it is visible.
func (s *Store) show(ctx context.Context, ids ...string) error {
	_, err := s.objects.UpdateMany(ctx, bson.D{is("_id", bson.D{is("$in", ids)})}, set(is("visible", true)))
	return err
}

// Completed implements [files.Objects].
func (s *Store) Completed(ctx context.Context, slot string) (files.Completion, error) {
	var c completion
	if err := s.completions.FindOne(ctx, bson.D{is("_id", slot)}).Decode(&c); err != nil {
		return files.Completion{}, named("find completion", err, files.ErrNoCompletion)
	}
	return files.Completion{Slot: c.Slot, Key: c.Key, ArgsDigest: c.ArgsDigest, ObjectID: c.ObjectID}, nil
}

// dropSlot is the slot of an object's drop. No handle and no put has it.
func dropSlot(id string) string { return "drop:" + id }

// DropObject implements [files.Objects]. The drop stays, so that a completion that
// comes late finds it.
func (s *Store) DropObject(ctx context.Context, id string) (dropped bool, err error) {
	_, err = s.completions.InsertOne(ctx, completion{Slot: dropSlot(id), ObjectID: id, Dropped: true, At: time.Now().UnixMicro()})
	if mongo.IsDuplicateKeyError(err) {
		switch err := s.completions.FindOne(ctx, bson.D{is("_id", dropSlot(id))}).Err(); {
		case errors.Is(err, mongo.ErrNoDocuments):
			return false, nil // it is visible
		case err != nil:
			return false, named("drop object", err, nil)
		}
	} else if err != nil {
		return false, named("drop object", err, nil)
	}
	res, err := s.objects.DeleteOne(ctx, bson.D{is("_id", id)})
	if err != nil {
		return false, named("drop object", err, nil)
	}
	return res.DeletedCount > 0, nil
}

// Object implements [files.Objects].
func (s *Store) Object(ctx context.Context, id string) (files.Object, error) {
	var o object
	if err := s.objects.FindOne(ctx, bson.D{is("_id", id)}).Decode(&o); err != nil {
		return files.Object{}, named("find object", err, files.ErrNoObject)
	}
	if !o.Visible {
		err := s.completions.FindOne(ctx, bson.D{is("object", id), is("dropped", false)}).Err()
		if err != nil {
			return files.Object{}, named("find object", err, files.ErrNoObject)
		}
	}
	return o.object()
}
