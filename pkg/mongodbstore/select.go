package mongodbstore

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/storeaddr"
)

// Select opens the back end that an address names: file opens one in the SQLite file
// at a path, and database one in a MongoDB database, which is closed again where that
// fails. tracer makes the spans of commands to MongoDB; nil makes none. With an error
// there is no store.
func Select[S any](
	ctx context.Context, a storeaddr.Address, tracer trace.Tracer,
	file func(ctx context.Context, path string) (S, error), database func(ctx context.Context, db *DB) (S, error),
) (S, error) {
	var none S // and no nil pointer in an interface
	if !a.MongoDB() {
		s, err := file(ctx, a.Location)
		if err != nil {
			return none, err
		}
		return s, nil
	}
	db, err := Open(ctx, Config{Address: a, Tracer: tracer})
	if err != nil {
		return none, err
	}
	s, err := database(ctx, db)
	if err != nil {
		return none, errors.Join(err, db.Close()) //nolint:contextcheck // also when ctx has ended
	}
	return s, nil
}
