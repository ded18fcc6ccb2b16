// Package mongodbstore opens the MongoDB database of the services, all with the same
// durability and the same bounds. The collections of several components share
// one database.
//
// Every write waits for a majority and its journal, and every read is a majority
// read from the primary. What decides is a conditional update of one document or
// a unique insert; no transaction is needed.
//
// The driver repeats a write whose answer was lost (retryWrites), under the number
// that it had and as often as its time allows, and a server with sessions answers
// what it answered the first time; what changes many documents has no number and is
// not repeated. What the driver cannot settle stays unknown, and is settled by whoever
// made the write: by reading back a nonce, never by writing again blindly.
package mongodbstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/secretfile"
	"cofferdam.dev/pkg/storeaddr"
)

const (
	// DefaultDatabase is used where the URI names none.
	DefaultDatabase = "cofferdam"
	// opTimeout bounds one operation whose context has no deadline.
	opTimeout       = 30 * time.Second
	selectTimeout   = 10 * time.Second
	maxConns        = 64
	maxPassword     = 4 << 10
	disconnectGrace = 5 * time.Second
)

// Config of a DB.
type Config struct {
	// Address has a mongodb:// or mongodb+srv:// location.
	storeaddr.Address
	// Tracer makes a span of each command, without its contents; nil makes none.
	Tracer trace.Tracer
}

// Validate reports what is wrong.
func (c Config) Validate() error {
	if !c.MongoDB() {
		return errors.New("store: mongodb://HOST or mongodb+srv://HOST")
	}
	if err := c.Address.Validate(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// DB is one database. It is safe for concurrent use.
type DB struct {
	db *mongo.Database
	// release gives up what the DB holds of its client, once.
	release func() error
	// schema is what Migrate brought a component to.
	mu     sync.Mutex
	schema map[string]int32
}

// Open connects by a client of its own, bounded by ctx.
func Open(ctx context.Context, c Config) (*DB, error) {
	return NewClients(c.Tracer).Open(ctx, c.Address)
}

// connect makes a client and asks whether its server answers.
func connect(ctx context.Context, c Config) (*mongo.Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	o := options.Client().ApplyURI(c.Location).
		SetAppName("cofferdam").
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: new(true)}).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetRetryWrites(true).SetRetryReads(true).
		SetServerSelectionTimeout(selectTimeout).
		SetTimeout(opTimeout).
		SetMaxPoolSize(maxConns)
	if c.Tracer != nil {
		o.SetMonitor(monitor(c.Tracer))
	}
	if err := authenticate(o, c.PasswordFile); err != nil {
		return nil, err
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, fmt.Errorf("mongodbstore: %w", err)
	}
	if err := client.Ping(ctx, readpref.Primary()); err != nil {
		return nil, errors.Join(fmt.Errorf("mongodbstore: no answer: %w", err), disconnect(context.WithoutCancel(ctx), client))
	}
	return client, nil
}

func disconnect(ctx context.Context, client *mongo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, disconnectGrace)
	defer cancel()
	return client.Disconnect(ctx)
}

func newDB(client *mongo.Client, a storeaddr.Address, release func() error) *DB {
	return &DB{db: client.Database(database(a.Location)), release: release, schema: map[string]int32{}}
}

func authenticate(o *options.ClientOptions, passwordFile string) error {
	if passwordFile == "" {
		return nil
	}
	info, err := os.Stat(passwordFile)
	switch {
	case err != nil:
		return fmt.Errorf("store password: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxPassword:
		return fmt.Errorf("store password: %s is not a regular file of at most 4 KiB", passwordFile)
	}
	if err := secretfile.Private(info); err != nil {
		return fmt.Errorf("store password: %s: %w", passwordFile, err)
	}
	raw, err := os.ReadFile(passwordFile)
	if err != nil {
		return fmt.Errorf("store password: %w", err)
	}
	if o.Auth == nil {
		o.Auth = &options.Credential{}
	}
	o.Auth.Password, o.Auth.PasswordSet = strings.TrimRight(string(raw), "\r\n"), true
	return nil
}

func database(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return DefaultDatabase
	}
	if name := strings.Trim(u.Path, "/"); name != "" {
		return name
	}
	return DefaultDatabase
}

// Collection of the database.
func (d *DB) Collection(name string) *mongo.Collection { return d.db.Collection(name) }

// Drop removes the database and all in it; it is for tests.
func (d *DB) Drop(ctx context.Context) error { return d.db.Drop(ctx) }

// Close gives the connections up, unless another DB of the same Clients holds them.
// It can be repeated.
func (d *DB) Close() error { return d.release() }
