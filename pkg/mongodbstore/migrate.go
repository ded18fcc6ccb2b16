package mongodbstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	versionsName = "component_versions"
	// migrateTimeout bounds a migration whose context has no deadline. A server takes
	// minutes to make an index of a large collection, or to let one wait behind the
	// writes of others: a start that gave up after the time of one operation would give
	// up each time.
	migrateTimeout = 15 * time.Minute
)

// Index of a collection.
type Index struct {
	Collection string
	Keys       bson.D
	Unique     bool
}

// Step makes version n+1 of version n of a component.
type Step struct {
	// Indexes that the version needs; they are made at every start where they are
	// missing.
	Indexes []Index
	// Apply changes what is stored; nil changes nothing. Several programs may apply
	// it at once, and again after one that stopped half-way.
	Apply func(ctx context.Context, db *DB) error
}

// Migrate brings a component to the last of its versions: steps[n] makes version
// n+1 of version n. A database with a newer version is refused, so that an older
// program never writes what a newer one cannot read. One that is moved on while
// this program runs is noticed by Check. It takes as long as the server needs for
// its indexes, at most a quarter of an hour.
func (d *DB) Migrate(ctx context.Context, component string, steps []Step) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	known := int32(len(steps)) //nolint:gosec // a few steps
	stands, err := d.versions(ctx)
	if err != nil {
		return err
	}
	if err := refuseNewer(component, stands[component], known); err != nil {
		return err
	}
	for n, s := range steps {
		if err := d.step(ctx, s, int32(n) >= stands[component]); err != nil {
			return fmt.Errorf("mongodbstore: version %d of %s: %w", n+1, component, err)
		}
	}
	_, err = d.Collection(versionsName).UpdateOne(ctx, bson.D{{Key: "_id", Value: component}},
		bson.D{{Key: "$max", Value: bson.D{{Key: "version", Value: known}}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) { // another program was first
		return fmt.Errorf("mongodbstore: version of %s: %w", component, err)
	}
	d.mu.Lock()
	d.schema[component] = known
	d.mu.Unlock()
	return d.Check(ctx)
}

func (d *DB) step(ctx context.Context, s Step, apply bool) error {
	for _, i := range s.Indexes {
		_, err := d.Collection(i.Collection).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: i.Keys, Options: options.Index().SetUnique(i.Unique)})
		if err != nil {
			return fmt.Errorf("index of %s: %w", i.Collection, err)
		}
	}
	if !apply || s.Apply == nil {
		return nil
	}
	return s.Apply(ctx, d)
}

// Check asks whether the database answers, and whether its components still have
// the versions that they were brought to.
func (d *DB) Check(ctx context.Context) error {
	stands, err := d.versions(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	schema := maps.Clone(d.schema)
	d.mu.Unlock()
	for component, known := range schema {
		if err := refuseNewer(component, stands[component], known); err != nil {
			return err
		}
	}
	return nil
}

func refuseNewer(component string, stands, known int32) error {
	if stands <= known {
		return nil
	}
	return fmt.Errorf("mongodbstore: the database has version %d of %s and this program knows up to %d; start the newer program", stands, component, known)
}

// versions are those of all components.
func (d *DB) versions(ctx context.Context) (map[string]int32, error) {
	found, err := d.Collection(versionsName).Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("mongodbstore: versions: %w", err)
	}
	var all []struct {
		Component string `bson:"_id"`
		Version   int32  `bson:"version"`
	}
	if err := found.All(ctx, &all); err != nil {
		return nil, fmt.Errorf("mongodbstore: versions: %w", err)
	}
	out := map[string]int32{}
	for _, v := range all {
		out[v.Component] = v.Version
	}
	return out, nil
}
