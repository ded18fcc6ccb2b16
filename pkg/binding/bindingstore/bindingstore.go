// Package bindingstore opens the back end of the committed records that an address
// names.
package bindingstore

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

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

// Open opens or makes the store. tracer makes the spans of commands to MongoDB;
// nil makes none.
func Open(ctx context.Context, a storeaddr.Address, tracer trace.Tracer) (Store, error) {
	if !a.MongoDB() {
		return checked(sqlitestore.Open(ctx, a.Location))
	}
	db, err := mongodbstore.Open(ctx, mongodbstore.Config{Address: a, Tracer: tracer})
	if err != nil {
		return nil, fmt.Errorf("store of committed records: %w", err)
	}
	s, err := mongostore.Open(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close()) //nolint:contextcheck // also when ctx has ended
	}
	return s, nil
}

// checked keeps a nil *Store out of the interface.
func checked(s *sqlitestore.Store, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
