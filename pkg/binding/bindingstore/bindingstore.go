// Package bindingstore opens the back end of the committed records that an address
// names.
package bindingstore

import (
	"context"
	"fmt"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/mongostore"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
)

// Store is a back end that says whether it answers.
type Store interface {
	binding.Backend
	// Check asks whether the store answers, and still has the version that this
	// program knows.
	Check(ctx context.Context) error
}

// Open opens or makes the store. c has the clients of MongoDB, one for all
// stores of a program; nil makes one for this store.
func Open(ctx context.Context, a storeaddr.Address, c *mongodbstore.Clients) (Store, error) {
	s, err := mongodbstore.Select(ctx, a, c,
		func(ctx context.Context, path string) (Store, error) { return sqlitestore.Open(ctx, path) },
		func(ctx context.Context, db *mongodbstore.DB) (Store, error) { return mongostore.Open(ctx, db) })
	if err != nil {
		return nil, fmt.Errorf("store of committed records: %w", err)
	}
	return s, nil
}
