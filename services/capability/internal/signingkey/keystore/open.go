// Package keystore has the back ends of the document of signing keys. Each passes
// the suite in keystoretest.
package keystore

import (
	"context"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/capability/internal/signingkey"
)

// Store is a back end.
type Store interface {
	signingkey.Store
	Close() error
}

// Open opens or makes the store that an address names. c has the clients of
// MongoDB, one for all stores of a program; nil makes one for this store.
func Open(ctx context.Context, a storeaddr.Address, c *mongodbstore.Clients) (Store, error) {
	return mongodbstore.Select(ctx, a, c,
		func(ctx context.Context, path string) (Store, error) { return OpenSQLite(ctx, path) },
		func(ctx context.Context, db *mongodbstore.DB) (Store, error) { return OpenMongoDB(ctx, db) })
}
