// Package keystore has the back ends of the document of signing keys. Each passes
// the suite in keystoretest.
package keystore

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/capability/internal/signingkey"
)

// Store is a back end.
type Store interface {
	signingkey.Store
	Close() error
}

// Open opens or makes the store that an address names. tracer makes the spans of
// commands to MongoDB; nil makes none.
func Open(ctx context.Context, a storeaddr.Address, tracer trace.Tracer) (Store, error) {
	if !a.MongoDB() {
		return checked(OpenSQLite(ctx, a.Location))
	}
	db, err := mongodbstore.Open(ctx, mongodbstore.Config{Address: a, Tracer: tracer})
	if err != nil {
		return nil, err
	}
	m, err := OpenMongoDB(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close()) //nolint:contextcheck // also when ctx has ended
	}
	return m, nil
}

// checked keeps a nil *SQLite out of the interface.
func checked(s *SQLite, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
