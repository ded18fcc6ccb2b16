package mongostore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/services/filebroker/internal/files"
)

// content is the stored form of a files.Content. One document decides: what refers to a
// content says so in it, and it is removed only where that was not said.
type content struct {
	SHA256     string `bson:"_id"` // hexadecimal
	Size       int64  `bson:"size"`
	BlobID     string `bson:"blob"`
	PutAt      int64  `bson:"put_at"` // Unix microseconds
	Referenced bool   `bson:"referenced"`
}

func (c content) content() (files.Content, error) {
	out := files.Content{Content: blob.Content{Size: c.Size}, BlobID: c.BlobID, PutAt: time.UnixMicro(c.PutAt).UTC()}
	if n, err := hex.Decode(out.SHA256[:], []byte(c.SHA256)); err != nil || n != sha256.Size {
		return files.Content{}, errors.New("find content: digest is damaged")
	}
	return out, nil
}

func contentID(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:]) }

// AddContent implements [files.Contents].
func (s *Store) AddContent(ctx context.Context, c files.Content) (files.Content, error) {
	id := contentID(c.SHA256)
	for range overtaken {
		_, err := s.contents.InsertOne(ctx, content{SHA256: id, Size: c.Size, BlobID: c.BlobID, PutAt: c.PutAt.UnixMicro()})
		if err != nil && !mongo.IsDuplicateKeyError(err) {
			return files.Content{}, named("add content", err, nil)
		}
		if stands, err := s.PutAgain(ctx, c.SHA256, c.PutAt); !errors.Is(err, files.ErrNoContent) {
			return stands, err
		} // it was retired in between
	}
	return files.Content{}, fmt.Errorf("add content: overtaken %d times", overtaken)
}

// PutAgain implements [files.Contents].
func (s *Store) PutAgain(ctx context.Context, sum [sha256.Size]byte, at time.Time) (files.Content, error) {
	older := bson.D{is("_id", contentID(sum)), is("put_at", bson.D{is("$lt", at.UnixMicro())})}
	if _, err := s.contents.UpdateOne(ctx, older, set(is("put_at", at.UnixMicro()))); err != nil {
		return files.Content{}, named("put content again", err, nil)
	}
	return s.Content(ctx, sum)
}

// Content implements [files.Contents].
func (s *Store) Content(ctx context.Context, sum [sha256.Size]byte) (files.Content, error) {
	var c content
	if err := s.contents.FindOne(ctx, bson.D{is("_id", contentID(sum))}).Decode(&c); err != nil {
		return files.Content{}, named("find content", err, files.ErrNoContent)
	}
	return c.content()
}

// ReferContents implements [files.Contents]. Where all of them are referred to already
// nothing is written.
func (s *Store) ReferContents(ctx context.Context, sums [][sha256.Size]byte) error {
	ids := make([]string, len(sums))
	for i, sum := range sums {
		ids[i] = contentID(sum)
	}
	all, err := s.referred(ctx, ids)
	if err != nil || all {
		return named("refer to contents", err, nil)
	}
	which := bson.D{is("_id", bson.D{is("$in", ids)}), is("referenced", false)}
	if _, err = s.contents.UpdateMany(ctx, which, set(is("referenced", true))); err == nil {
		all, err = s.referred(ctx, ids)
	}
	if err == nil && !all {
		err = files.ErrNoContent
	}
	return named("refer to contents", err, nil)
}

// referred reports whether all of them are there and referred to.
func (s *Store) referred(ctx context.Context, ids []string) (bool, error) {
	found, err := s.contents.Find(ctx, bson.D{is("_id", bson.D{is("$in", ids)}), is("referenced", true)},
		options.Find().SetProjection(bson.D{is("_id", 1)}))
	if err != nil {
		return false, err
	}
	var all []content
	if err := found.All(ctx, &all); err != nil {
		return false, err
	}
	there := make(map[string]bool, len(all))
	for _, c := range all {
		there[c.SHA256] = true
	}
	for _, id := range ids {
		if !there[id] {
			return false, nil
		}
	}
	return true, nil
}

// UnusedContents implements [files.Contents].
func (s *Store) UnusedContents(ctx context.Context, before time.Time, limit int) ([]files.Content, error) {
	found, err := s.contents.Find(ctx, bson.D{is("referenced", false), is("put_at", bson.D{is("$lt", before.UnixMicro())})},
		options.Find().SetLimit(int64(limit)))
	if err != nil {
		return nil, named("list contents", err, nil)
	}
	var all []content
	if err := found.All(ctx, &all); err != nil {
		return nil, named("list contents", err, nil)
	}
	out := make([]files.Content, len(all))
	for i, c := range all {
		if out[i], err = c.content(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RetireContent implements [files.Contents].
func (s *Store) RetireContent(ctx context.Context, sum [sha256.Size]byte, before time.Time) (bool, error) {
	res, err := s.contents.DeleteOne(ctx, bson.D{
		is("_id", contentID(sum)), is("referenced", false), is("put_at", bson.D{is("$lt", before.UnixMicro())}),
	})
	if err != nil {
		return false, named("retire content", err, nil)
	}
	return res.DeletedCount > 0, nil
}
