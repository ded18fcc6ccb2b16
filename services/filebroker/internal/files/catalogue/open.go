package catalogue

import (
	"context"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue/mongostore"
)

// Store is a back end that was opened.
type Store interface {
	files.Catalogue
	// Check asks whether the store answers, and still has the version that this
	// program knows.
	Check(ctx context.Context) error
	Close() error
}

// Open opens the catalogue that an address names. c has the clients of MongoDB,
// one for all stores of a program; nil makes one for this store.
func Open(ctx context.Context, a storeaddr.Address, c *mongodbstore.Clients) (Store, error) {
	return mongodbstore.Select(ctx, a, c,
		func(ctx context.Context, path string) (Store, error) { return OpenSQLite(ctx, path) },
		func(ctx context.Context, db *mongodbstore.DB) (Store, error) { return mongostore.Open(ctx, db) })
}
