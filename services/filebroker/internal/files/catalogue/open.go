package catalogue

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

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

// Open opens the catalogue that an address names. tracer makes the spans of
// commands to MongoDB; nil makes none.
func Open(ctx context.Context, a storeaddr.Address, tracer trace.Tracer) (Store, error) {
	if !a.MongoDB() {
		s, err := OpenSQLite(ctx, a.Location)
		if err != nil {
			return nil, err // and no nil *SQLite in the interface
		}
		return s, nil
	}
	db, err := mongodbstore.Open(ctx, mongodbstore.Config{Address: a, Tracer: tracer})
	if err != nil {
		return nil, err
	}
	s, err := mongostore.Open(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close()) //nolint:contextcheck // also when ctx has ended
	}
	return s, nil
}
