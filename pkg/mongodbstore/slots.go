package mongodbstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// ErrNoSlot says that a scope has as many documents as it may.
var ErrNoSlot = errors.New("mongodbstore: no slot is free")

// The fields of a document that takes a slot.
const (
	ScopeField = "scope"
	SlotField  = "slot"
)

// slotTries is how often a slot is tried that somebody else took meanwhile.
const slotTries = 256

// SlotIndex bounds how many documents of a scope there are: each takes one of the
// scope's slots, and no two take one.
func SlotIndex(collection string) Index {
	return Index{Collection: collection, Keys: bson.D{{Key: ScopeField, Value: 1}, {Key: SlotField, Value: 1}}, Unique: true}
}

// InsertInSlot inserts the document that doc makes for a slot of the scope, which
// are 0 to most-1, unless one of the given key stands: inserted tells, and one that
// stands may be this very insert, repeated by the driver. ErrNoSlot where no slot
// is free.
//
// A bound that is counted before the insert would not hold for two at once; a
// unique slot does. Deleting the document gives its slot back.
func InsertInSlot(ctx context.Context, c *mongo.Collection, key bson.D, scope string, most int, doc func(slot int32) any) (inserted bool, err error) {
	var taken map[int32]bool // not looked at while there is likely to be room
	for range slotTries {
		if slot, ok := freeSlot(taken, most); ok {
			_, err := c.InsertOne(ctx, doc(slot))
			if err == nil || !mongo.IsDuplicateKeyError(err) {
				return err == nil, err
			}
		}
		// The key, or the slot, or there was none.
		switch err := c.FindOne(ctx, key, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err(); {
		case err == nil:
			return false, nil
		case !errors.Is(err, mongo.ErrNoDocuments):
			return false, err
		}
		if taken != nil && len(taken) >= most {
			return false, ErrNoSlot
		}
		if taken, err = takenSlots(ctx, c, scope); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("mongodbstore: overtaken %d times at the slots of one scope", slotTries)
}

func freeSlot(taken map[int32]bool, most int) (int32, bool) {
	if len(taken) >= most {
		return 0, false
	}
	for n, at := 0, rand.IntN(most); n < most; n++ { //nolint:gosec // any will do
		if slot := int32((at + n) % most); !taken[slot] { //nolint:gosec // most is a small bound
			return slot, true
		}
	}
	return 0, false
}

func takenSlots(ctx context.Context, c *mongo.Collection, scope string) (map[int32]bool, error) {
	found, err := c.Find(ctx, bson.D{{Key: ScopeField, Value: scope}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: SlotField, Value: 1}}))
	if err != nil {
		return nil, err
	}
	var all []struct {
		Slot int32 `bson:"slot"`
	}
	if err := found.All(ctx, &all); err != nil {
		return nil, err
	}
	taken := make(map[int32]bool, len(all))
	for _, d := range all {
		taken[d.Slot] = true
	}
	return taken, nil
}
