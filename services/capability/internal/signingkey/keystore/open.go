// Package keystore has the back ends of the document of signing keys. Each passes
// the suite in keystoretest.
package keystore

import (
	"context"

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
	return mongodbstore.Select(ctx, a, tracer,
		func(ctx context.Context, path string) (Store, error) { return OpenSQLite(ctx, path) },
		func(ctx context.Context, db *mongodbstore.DB) (Store, error) { return OpenMongoDB(ctx, db) })
}
