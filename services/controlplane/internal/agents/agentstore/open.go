// Package agentstore has the back ends of the versions of agents. Each passes the
// suite in agentstoretest.
package agentstore

import (
	"context"

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
// there. c has the clients of MongoDB, one for all stores of a program; nil
// makes one for this store.
func Open(ctx context.Context, a storeaddr.Address, c *mongodbstore.Clients) (Store, error) {
	return mongodbstore.Select(ctx, a, c,
		func(ctx context.Context, path string) (Store, error) { return OpenSQLite(ctx, path) },
		func(ctx context.Context, db *mongodbstore.DB) (Store, error) { return OpenMongoDB(ctx, db) })
}
