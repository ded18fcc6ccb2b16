package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"cofferdam.dev/services/filebroker/internal/files"
)

// overtaken is how often a reservation is tried again that another one overtook.
const overtaken = 256

// quota is the document of a binding that its reservations move on.
type quota struct {
	BindingID string `bson:"_id"`
	Version   int64  `bson:"version"`
	// Last object that was reserved; it may not say so itself yet.
	Last string `bson:"last"`
}

// reserve lets the staged object count, or gives files.ErrQuota.
func (s *Store) reserve(ctx context.Context, o files.Object, q files.Quota) error {
	for range overtaken {
		stands, err := s.quota(ctx, o.BindingID)
		if err != nil {
			return err
		}
		if err := s.count(ctx, stands.Last); err != nil {
			return err
		}
		// The update below may have been made, and repeated by the driver; then it
		// counts by now.
		switch err := s.objects.FindOne(ctx, bson.D{is("_id", o.ID), is("reserved", true)}).Err(); {
		case err == nil:
			return nil
		case !errors.Is(err, mongo.ErrNoDocuments):
			return err
		}
		if err := s.fits(ctx, o, q); err != nil {
			return err
		}
		res, err := s.quotas.UpdateOne(ctx, bson.D{is("_id", o.BindingID), is("version", stands.Version)},
			set(is("version", stands.Version+1), is("last", o.ID)))
		if err != nil {
			return err
		}
		if res.MatchedCount == 1 {
			return s.count(ctx, o.ID)
		}
	}
	return fmt.Errorf("overtaken %d times", overtaken)
}

// quota reads the document of the binding, and makes it where there is none.
func (s *Store) quota(ctx context.Context, bindingID string) (q quota, err error) {
	err = s.quotas.FindOne(ctx, bson.D{is("_id", bindingID)}).Decode(&q)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return q, err
	}
	q = quota{BindingID: bindingID}
	if _, err = s.quotas.InsertOne(ctx, q); mongo.IsDuplicateKeyError(err) {
		err = s.quotas.FindOne(ctx, bson.D{is("_id", bindingID)}).Decode(&q)
	}
	return q, err
}

// count lets a reserved object count, if it is there.
func (s *Store) count(ctx context.Context, id string) error {
	_, err := s.objects.UpdateOne(ctx, bson.D{is("_id", id)}, set(is("reserved", true)))
	return err
}

// fits adds up what counts at q.Now.
func (s *Store) fits(ctx context.Context, o files.Object, q files.Quota) error {
	found, err := s.objects.Find(ctx, bson.D{is("binding", o.BindingID), is("reserved", true)},
		options.Find().SetProjection(bson.D{is("size", 1), is("visible", 1), is("staged_until", 1)}))
	if err != nil {
		return err
	}
	var all []object
	if err := found.All(ctx, &all); err != nil {
		return err
	}
	var bytes int64
	var objects int
	var left []string
	for _, a := range all {
		if !a.Visible && a.StagedUntil <= q.Now.UnixMicro() {
			left = append(left, a.ID)
			continue
		}
		objects, bytes = objects+1, bytes+a.Size
	}
	if len(left) > 0 {
		completed, err := s.completed(ctx, left)
		if err != nil {
			return err
		}
		for _, a := range all {
			if completed[a.ID] {
				objects, bytes = objects+1, bytes+a.Size
			}
		}
	}
	if objects >= q.Objects || o.Info.Size > q.Bytes-bytes {
		return files.ErrQuota
	}
	return nil
}

// completed are those objects that are visible and do not say so: whoever
// completed them did not come that far.
func (s *Store) completed(ctx context.Context, ids []string) (map[string]bool, error) {
	found, err := s.completions.Find(ctx, bson.D{is("object", bson.D{is("$in", ids)}), is("dropped", false)})
	if err != nil {
		return nil, err
	}
	var all []completion
	if err := found.All(ctx, &all); err != nil {
		return nil, err
	}
	completed := map[string]bool{}
	var show []string
	for _, c := range all {
		completed[c.ObjectID], show = true, append(show, c.ObjectID)
	}
	if len(show) == 0 {
		return completed, nil
	}
	return completed, s.show(ctx, show...)
}
