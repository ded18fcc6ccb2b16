package mongodbstore

import (
	"context"
	"errors"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/storeaddr"
)

// Clients are the connections of one program. Its stores share one client for each
// address, so that a bound of connections is the program's, and the server is
// watched once. It is safe for concurrent use.
type Clients struct {
	tracer trace.Tracer

	mu   sync.Mutex
	open map[storeaddr.Address]*shared
}

// shared is a client and how many hold it.
type shared struct {
	client *mongo.Client
	users  int
}

// NewClients makes no connection. tracer makes the spans of all commands, without
// their contents; nil makes none.
func NewClients(tracer trace.Tracer) *Clients {
	return &Clients{tracer: tracer, open: map[storeaddr.Address]*shared{}}
}

// Open opens a database by the client of its address, which is made, and asked
// whether its server answers, where nobody holds one; bounded by ctx. The last DB
// that is closed closes it.
func (c *Clients) Open(ctx context.Context, a storeaddr.Address) (*DB, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.open[a]
	if s == nil {
		client, err := connect(ctx, Config{Address: a, Tracer: c.tracer})
		if err != nil {
			return nil, err
		}
		s = &shared{client: client}
		c.open[a] = s
	}
	s.users++
	lasting := context.WithoutCancel(ctx)
	return newDB(s.client, a, sync.OnceValue(func() error { return c.release(lasting, a) })), nil
}

func (c *Clients) release(ctx context.Context, a storeaddr.Address) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.open[a]
	if s.users--; s.users > 0 {
		return nil
	}
	delete(c.open, a)
	return disconnect(ctx, s.client)
}

// Select opens the back end that an address names: file opens one in the SQLite file
// at a path, and database one in a MongoDB database, which is closed again where that
// fails. A program has one c for all its stores; nil is a client of this store's own
// without spans. With an error there is no store.
func Select[S any](
	ctx context.Context, a storeaddr.Address, c *Clients,
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
	if c == nil {
		c = NewClients(nil)
	}
	db, err := c.Open(ctx, a)
	if err != nil {
		return none, err
	}
	s, err := database(ctx, db)
	if err != nil {
		return none, errors.Join(err, db.Close())
	}
	return s, nil
}
