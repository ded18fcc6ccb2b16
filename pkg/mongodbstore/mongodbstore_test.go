package mongodbstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/pkg/storeaddr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte("s3cret-canary\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		location, password, want string
	}{
		"no MongoDB":          {"https://host", "", "mongodb://"},
		"password in the URI": {"mongodb://u:" + "s3cret-canary@host", "", "leave the password out"},
		"password of nobody":  {"mongodb://host", secret, "needs a user"},
		"password for all":    {"mongodb://u@host", secret, "chmod 600"},
		"no password file":    {"mongodb://u@host", secret + "x", "no such file"},
		"a folder":            {"mongodb://u@host", dir, "regular file"},
	} {
		_, err := mongodbstore.Open(t.Context(), at(tt.location, tt.password))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func at(location, passwordFile string) mongodbstore.Config {
	return mongodbstore.Config{Address: storeaddr.Address{Location: location, PasswordFile: passwordFile}}
}

// A server that is not there is said to be so, within the time that was given.
func TestNobodyThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := mongodbstore.Open(ctx, at("mongodb://127.0.0.1:1/", "")); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%v", err)
	}
}

// The stores of a program share one client for each address. It lives until the last of
// them is closed, and one that could not be opened holds nothing.
func TestStoresShareOneClient(t *testing.T) {
	uri := mongodbstoretest.URI(t, mongodbstoretest.Server(t))
	a := storeaddr.Address{Location: uri}
	clients := mongodbstore.NewClients(nil)
	failed := errors.New("failed")
	open := func(fails error) (*mongodbstore.DB, error) {
		return mongodbstore.Select(t.Context(), a, clients,
			func(context.Context, string) (*mongodbstore.DB, error) { return nil, errors.ErrUnsupported },
			func(_ context.Context, db *mongodbstore.DB) (*mongodbstore.DB, error) { return db, fails })
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := open(nil)
	must(err)
	if _, err := open(failed); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	second, err := open(nil)
	must(err)
	one := first.Collection("things").Database().Client()
	if one != second.Collection("things").Database().Client() {
		t.Error("two clients of one address")
	}
	must(first.Close())
	must(first.Close())
	must(second.Check(t.Context()))
	must(second.Drop(t.Context()))
	must(second.Close())
	if err := second.Check(t.Context()); !errors.Is(err, mongo.ErrClientDisconnected) {
		t.Errorf("a client that nobody holds: %v", err)
	}
	third, err := open(nil)
	must(err)
	if one == third.Collection("things").Database().Client() {
		t.Error("a closed client is given again")
	}
	must(third.Check(t.Context()))
	must(third.Close())
}

func TestNewerVersionIsRefused(t *testing.T) {
	server := mongodbstoretest.Server(t)
	uri := mongodbstoretest.URI(t, server)
	open := func() *mongodbstore.DB {
		db := mongodbstoretest.Reopen(t, uri)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	older, newer := open(), open()
	t.Cleanup(func() { _ = newer.Drop(context.WithoutCancel(t.Context())) })
	index := []mongodbstore.Index{{Collection: "things", Keys: bson.D{{Key: "a", Value: 1}}, Unique: true}}
	var applied atomic.Int64
	first := mongodbstore.Step{Indexes: index}
	second := mongodbstore.Step{Apply: func(ctx context.Context, db *mongodbstore.DB) error {
		applied.Add(1)
		_, err := db.Collection("things").InsertOne(ctx, bson.D{{Key: "a", Value: 1}})
		return err
	}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "version 2 of thing and this program knows up to 1; start the newer program") {
			t.Errorf("an older program: %v", err)
		}
	}
	must(older.Migrate(t.Context(), "thing", []mongodbstore.Step{first}))
	must(older.Check(t.Context()))
	must(newer.Migrate(t.Context(), "thing", []mongodbstore.Step{first, second}))
	must(open().Migrate(t.Context(), "thing", []mongodbstore.Step{first, second}))
	if applied.Load() != 1 {
		t.Errorf("the step was applied %d times", applied.Load())
	}
	// One that starts is refused, and one that runs already is not ready any more.
	refused(open().Migrate(t.Context(), "thing", []mongodbstore.Step{first}))
	refused(older.Check(t.Context()))
	must(newer.Migrate(t.Context(), "other", []mongodbstore.Step{first}))
	must(newer.Check(t.Context()))
}

// A step that fails leaves the version as it was, and is taken again.
func TestFailedStepIsTakenAgain(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	t.Cleanup(func() { _ = db.Close() })
	boom, fails := errors.New("boom"), true
	steps := []mongodbstore.Step{{Apply: func(context.Context, *mongodbstore.DB) error {
		if fails {
			return boom
		}
		return nil
	}}}
	if err := db.Migrate(t.Context(), "thing", steps); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	fails = false
	if err := db.Migrate(t.Context(), "thing", steps); err != nil {
		t.Error(err)
	}
}

// Of many that take the slots of a scope at once as many succeed as there are.
func TestSlotsAreTakenOnce(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	t.Cleanup(func() { _ = db.Close() })
	if err := db.Migrate(t.Context(), "thing", []mongodbstore.Step{{Indexes: []mongodbstore.Index{mongodbstore.SlotIndex("things")}}}); err != nil {
		t.Fatal(err)
	}
	const most, writers = 5, 16
	things := db.Collection("things")
	put := func(id string) (bool, error) {
		return mongodbstore.InsertInSlot(t.Context(), things, bson.D{{Key: "_id", Value: id}}, "scope", most, func(slot int32) any {
			return bson.D{{Key: "_id", Value: id}, {Key: mongodbstore.ScopeField, Value: "scope"}, {Key: mongodbstore.SlotField, Value: slot}}
		})
	}
	var mu sync.Mutex
	var in []string
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			id := fmt.Sprint(n)
			inserted, err := put(id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && inserted:
				in = append(in, id)
			case !errors.Is(err, mongodbstore.ErrNoSlot):
				t.Errorf("%v, %v", inserted, err)
			}
		})
	}
	wg.Wait()
	if len(in) != most {
		t.Fatalf("%d took %d slots", len(in), most)
	}
	if inserted, err := put(in[0]); err != nil || inserted {
		t.Errorf("one that stands in a full scope: %v, %v", inserted, err)
	}
	if _, err := things.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: in[0]}}); err != nil {
		t.Fatal(err)
	}
	if inserted, err := put("another"); err != nil || !inserted {
		t.Errorf("a slot that was given back: %v, %v", inserted, err)
	}
}

// overWire opens a new database through a wire, and drops it at the end.
func overWire(t *testing.T, fate func(mongodbstoretest.Command) mongodbstoretest.Fate) *mongodbstore.DB {
	t.Helper()
	if mongodbstoretest.External() {
		t.Skip("the wire goes to a server without TLS and users")
	}
	uri := mongodbstoretest.URI(t, mongodbstoretest.Server(t))
	t.Cleanup(func() {
		db := mongodbstoretest.Reopen(t, uri)
		_ = db.Drop(context.WithoutCancel(t.Context()))
		_ = db.Close()
	})
	db := mongodbstoretest.Reopen(t, mongodbstoretest.Wire(t, uri, fate))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A write whose answer was lost is repeated under its number, and the server answers
// what it answered then: of no write becomes two. What has no number is not repeated.
func TestALostAnswerMakesNoSecondWrite(t *testing.T) {
	for name, fate := range map[string]mongodbstoretest.Fate{
		"with the connection": mongodbstoretest.LoseAnswer, "on the other side": mongodbstoretest.LoseInside,
	} {
		t.Run(name, func(t *testing.T) {
			var numbered, many atomic.Int64
			db := overWire(t, func(c mongodbstoretest.Command) mongodbstoretest.Fate {
				switch {
				case c.Retryable:
					numbered.Add(1)
					return fate
				case c.Name == "delete":
					many.Add(1)
					return fate
				}
				return mongodbstoretest.Deliver
			})
			things := db.Collection("things")
			if _, err := things.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}); err != nil {
				t.Fatalf("insert: %v", err)
			}
			res, err := things.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			if err != nil || res.MatchedCount != 1 {
				t.Errorf("update: %+v, %v", res, err)
			}
			var d struct{ N int }
			if err := things.FindOne(t.Context(), bson.D{{Key: "_id", Value: 1}}).Decode(&d); err != nil || d.N != 1 {
				t.Errorf("it was added %d times, %v", d.N, err)
			}
			if gone, err := things.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil || gone.DeletedCount != 1 {
				t.Errorf("delete: %+v, %v", gone, err)
			}
			if _, err := things.DeleteMany(t.Context(), bson.D{}); err == nil || many.Load() != 1 {
				t.Errorf("a write without a number: %v, sent %d times", err, many.Load())
			}
			if numbered.Load() != 3 {
				t.Errorf("%d numbered writes, want 3", numbered.Load())
			}
		})
	}
}

// Every write waits for a majority and the journal, every read is a majority read, and
// both end with the time of the request, whether or not the server does.
func TestConcernsAndTimeOfCommands(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bson.Raw{}
	hang := false
	db := overWire(t, func(c mongodbstoretest.Command) mongodbstoretest.Fate {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Name] = c.Body
		if hang && (c.Name == "find" || c.Name == "insert") {
			return mongodbstoretest.Hang
		}
		return mongodbstoretest.Deliver
	})
	things := db.Collection("things")
	of := func(command string, path ...string) string {
		mu.Lock()
		defer mu.Unlock()
		return seen[command].Lookup(path...).String()
	}
	const given = 10 * time.Minute
	long, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	for name, ctx := range map[string]context.Context{"30 s": t.Context(), "the request": long} {
		_, ierr := things.InsertOne(ctx, bson.D{{Key: "a", Value: name}})
		_, uerr := things.UpdateOne(ctx, bson.D{{Key: "a", Value: name}}, bson.D{{Key: "$set", Value: bson.D{{Key: "b", Value: 1}}}})
		ferr := things.FindOne(ctx, bson.D{{Key: "a", Value: name}}).Err()
		_, derr := things.DeleteOne(ctx, bson.D{{Key: "a", Value: name}})
		if err := errors.Join(ierr, uerr, ferr, derr); err != nil {
			t.Fatal(err)
		}
		for _, write := range []string{"insert", "update", "delete"} {
			if of(write, "writeConcern", "w") != `"majority"` || of(write, "writeConcern", "j") != "true" {
				t.Errorf("%s with %s", write, of(write, "writeConcern"))
			}
		}
		if of("find", "readConcern", "level") != `"majority"` {
			t.Errorf("find with %s", of("find", "readConcern"))
		}
		most := 30 * time.Second // without a deadline
		if ctx == long {
			most = given
		}
		for _, command := range []string{"insert", "update", "delete", "find"} {
			mu.Lock()
			ms, ok := seen[command].Lookup("maxTimeMS").AsInt64OK()
			mu.Unlock()
			if limit := time.Duration(ms) * time.Millisecond; !ok || limit <= 0 || limit > most || ctx == long && limit <= 30*time.Second {
				t.Errorf("%s within %v, want within that of %s", command, limit, name)
			}
		}
	}
	mu.Lock()
	hang = true
	mu.Unlock()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := things.FindOne(short, bson.D{}).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read without an answer: %v", err)
	}
	short, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := things.InsertOne(short, bson.D{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write without an answer: %v", err)
	}
}

// An index of what is stored already takes a server as long as it takes: a start does
// not give up after the time of one operation, after which no start would succeed.
func TestAnIndexMayTakeMinutes(t *testing.T) {
	var mu sync.Mutex
	given := map[string]time.Duration{}
	db := overWire(t, func(c mongodbstoretest.Command) mongodbstoretest.Fate {
		mu.Lock()
		defer mu.Unlock()
		ms, _ := c.Body.Lookup("maxTimeMS").AsInt64OK()
		given[c.Name] = time.Duration(ms) * time.Millisecond
		return mongodbstoretest.Deliver
	})
	step := mongodbstore.Step{
		Indexes: []mongodbstore.Index{{Collection: "things", Keys: bson.D{{Key: "a", Value: 1}}}},
		Apply: func(ctx context.Context, db *mongodbstore.DB) error {
			_, err := db.Collection("things").UpdateMany(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "b", Value: 1}}}})
			return err
		},
	}
	migrate := func(ctx context.Context, component string) map[string]time.Duration {
		if err := db.Migrate(ctx, component, []mongodbstore.Step{step}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(given)
	}
	for command, limit := range migrate(t.Context(), "one") {
		if (command == "createIndexes" || command == "update") && limit < 10*time.Minute {
			t.Errorf("%s within %v", command, limit)
		}
	}
	const mine = time.Minute
	short, cancel := context.WithTimeout(t.Context(), mine)
	defer cancel()
	if limit := migrate(short, "another")["createIndexes"]; limit <= 0 || limit > mine {
		t.Errorf("within %v, want the caller's %v", limit, mine)
	}
}

// Spans name commands and hold nothing of what is in them.
func TestSpansHaveNoContents(t *testing.T) {
	server := mongodbstoretest.Server(t)
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	uri := mongodbstoretest.URI(t, server)
	db, err := mongodbstore.Open(t.Context(), mongodbstore.Config{Address: storeaddr.Address{Location: uri}, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Drop(context.WithoutCancel(t.Context()))
		_ = db.Close()
	})
	things := db.Collection("things")
	for range 2 { // the second one fails
		_, _ = things.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "canary-1"}, {Key: "a", Value: "canary-2"}})
	}
	inserts := 0
	for _, s := range spans.Ended() {
		if s.Name() == "mongodb.insert" {
			inserts++
		}
		if text := strings.Join([]string{s.Name(), s.Status().Description, attributes(s)}, " "); strings.Contains(text, "canary") {
			t.Errorf("%s", text)
		}
	}
	if inserts != 2 {
		t.Errorf("%d spans of inserts", inserts)
	}
}

func attributes(s sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	for _, kv := range s.Attributes() {
		b.WriteString(string(kv.Key) + "=" + kv.Value.String() + " ")
	}
	return b.String()
}
