// Package agentstore has the back ends of the versions of agents. Each passes the
// suite in agentstoretest.
package agentstore

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/controlplane/internal/agents"
)

// component names the versions of the tables and collections.
const component = "agents"

// Store is a back end that was opened.
type Store interface {
	agents.Store
	// Check asks whether the store answers, and still has the version that this
	// program knows.
	Check(ctx context.Context) error
	Close() error
}

// Open opens or makes the store that an address names, beside what else is kept
// there. tracer makes the spans of commands to MongoDB; nil makes none.
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
	m, err := OpenMongoDB(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close()) //nolint:contextcheck // also when ctx has ended
	}
	return m, nil
}
