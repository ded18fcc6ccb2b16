package snapshotstore

import (
	"context"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// Store is a back end that was opened.
type Store interface {
	threadstate.Snapshots
	// Check asks whether the store answers, and still has the version that this
	// program knows.
	Check(ctx context.Context) error
	Close() error
}

// Open opens the store that an address names. c has the clients of MongoDB, one
// for all stores of a program; nil makes one for this store.
func Open(ctx context.Context, a storeaddr.Address, c *mongodbstore.Clients) (Store, error) {
	return mongodbstore.Select(ctx, a, c,
		func(ctx context.Context, path string) (Store, error) { return OpenSQLite(ctx, path) },
		func(ctx context.Context, db *mongodbstore.DB) (Store, error) { return OpenMongoDB(ctx, db) })
}
