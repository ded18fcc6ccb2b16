package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func field(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// An update that names what it compares is the same update where its filter is
// narrowed: what matches is changed, once, and what does not stays as it is.
func TestACompareAndSetComparesStill(t *testing.T) {
	c, err := mongo.Connect(options.Client().ApplyURI(start(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(t.Context()) })
	things := c.Database("test").Collection("things")
	for i := range 3 {
		_, err := things.InsertOne(t.Context(), bson.D{field("_id", strconv.Itoa(i)), field("v", int64(1)), field("who", "a"), field("list", bson.A{"x"}), field("n", 0)})
		if err != nil {
			t.Fatal(err)
		}
	}
	set := bson.D{field("$inc", bson.D{field("n", 1)})}
	for name, row := range map[string]struct {
		filter  bson.D
		matched int64
	}{
		"all as it is":       {bson.D{field("_id", "1"), field("v", int64(1)), field("who", "a")}, 1},
		"the id last":        {bson.D{field("v", int64(1)), field("_id", "1")}, 1},
		"another version":    {bson.D{field("_id", "1"), field("v", int64(2)), field("who", "a")}, 0},
		"another text":       {bson.D{field("_id", "1"), field("v", int64(1)), field("who", "b")}, 0},
		"a field it has not": {bson.D{field("_id", "1"), field("other", "a")}, 0},
		"another document":   {bson.D{field("_id", "9"), field("v", int64(1))}, 0},
		"a shorter number":   {bson.D{field("_id", "1"), field("v", int32(1))}, 1},
		"in a list":          {bson.D{field("_id", "1"), field("list", "x")}, 1},
		"an operator":        {bson.D{field("_id", "1"), field("v", bson.D{field("$gte", int64(1))})}, 1},
		"the id alone":       {bson.D{field("_id", "1")}, 1},
	} {
		before := count(t, things)
		res, err := things.UpdateOne(t.Context(), row.filter, set)
		if err != nil || res.MatchedCount != row.matched {
			t.Errorf("%s: %+v, %v; want %d matched", name, res, err, row.matched)
			continue
		}
		if n := count(t, things) - before; n != row.matched {
			t.Errorf("%s: %d documents were changed, want %d", name, n, row.matched)
		}
	}
	res, err := things.UpdateOne(t.Context(), bson.D{field("_id", "new"), field("v", int64(7))}, set, options.UpdateOne().SetUpsert(true))
	var made struct{ V, N int64 }
	if err != nil || res.UpsertedCount != 1 || things.FindOne(t.Context(), bson.D{field("_id", "new")}).Decode(&made) != nil || made.V != 7 || made.N != 1 {
		t.Errorf("an upsert: %+v, %+v, %v", res, made, err)
	}
}

// count is how often something was changed, in all documents.
func count(t *testing.T, things *mongo.Collection) (n int64) {
	t.Helper()
	cursor, err := things.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ N int64 }
	if err := cursor.All(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, doc := range all {
		n += doc.N
	}
	return n
}

// updateMessage is one as the driver sends UpdateOne.
func updateMessage(t testing.TB, filter bson.D) []byte {
	t.Helper()
	doc := func(v bson.D) []byte {
		raw, err := bson.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	documents := append([]byte("updates\x00"), doc(bson.D{field("q", filter), field("u", bson.D{field("$set", bson.D{field("v", int64(2))})})})...)
	m := make([]byte, headerBytes+flagBytes)
	putLength(m[12:], opMsg)
	m = append(append(m, sectionBody), doc(bson.D{field("update", "things"), field("ordered", true), field("$db", "test")})...)
	m = append(append(m, sectionSequence, 0, 0, 0, 0), documents...)
	putLength(m[len(m)-len(documents)-lengthBytes:], len(documents)+lengthBytes)
	putLength(m, len(m))
	return m
}

// witness sees what is written to FerretDB.
type witness struct {
	net.Conn

	updates *[][]byte
}

func (w witness) Write(b []byte) (int, error) {
	if name, _ := command(b); name == "update" {
		*w.updates = append(*w.updates, bytes.Clone(b))
	}
	return w.Conn.Write(b)
}

// What the driver sends is what is read here: FerretDB gets the id alone where the
// document is as it should be, and the whole filter where it is not.
func TestTheDriversUpdatesAreNarrowed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	backend, ended, err := startFerretDB(ctx, t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var seen [][]byte
	p := &proxy{dial: func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", backend)
		return witness{c, &seen}, err
	}}
	served := make(chan error, 1)
	go func() { served <- p.serve(ctx, l) }()
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + l.Addr().String() + "/").SetRetryWrites(false))
	if err != nil {
		t.Fatal(err)
	}
	things := c.Database("test").Collection("things")
	if _, err := things.InsertOne(ctx, bson.D{field("_id", "x"), field("v", int64(1))}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := things.UpdateOne(ctx, bson.D{field("_id", "x"), field("v", int64(1))}, bson.D{field("$set", bson.D{field("v", int64(2))})})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Disconnect(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	if err := errors.Join(<-served, <-ended); err != nil {
		t.Error(err)
	}
	if len(seen) != 2 {
		t.Fatalf("%d updates", len(seen))
	}
	for i, whole := range []bool{false, true} {
		if _, ok := singleUpdate(seen[i]); ok != whole {
			t.Errorf("update %d has its whole filter: %v", i, ok)
		}
	}
}

// A narrowed message is one that the driver could have sent.
func TestANarrowedMessageIsWhole(t *testing.T) {
	m := updateMessage(t, bson.D{field("_id", "x"), field("version", int64(1)), field("run", "r")})
	u, ok := singleUpdate(m)
	if !ok {
		t.Fatal("the update is not read")
	}
	if got, want := u.byID(m), updateMessage(t, bson.D{field("_id", "x")}); !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	asked, err := bsoncore.Document(body(u.find())).LookupErr("filter", "_id")
	if err != nil || asked.StringValue() != "x" {
		t.Errorf("%v, %v", asked, err)
	}
	for name, filter := range map[string]bson.D{
		"the id alone":         {field("_id", "x")},
		"no id":                {field("version", int64(1))},
		"an operator":          {field("_id", "x"), field("$or", bson.A{})},
		"a part of a document": {field("_id", "x"), field("v", bson.D{})},
		"another id":           {field("_id", int64(1)), field("version", int64(1))},
	} {
		if _, ok := singleUpdate(updateMessage(t, filter)); ok {
			t.Errorf("%s: is narrowed", name)
		}
	}
}

func FuzzNarrowed(f *testing.F) {
	f.Add(updateMessage(f, bson.D{field("_id", "x"), field("version", int64(1))}))
	f.Fuzz(func(t *testing.T, message []byte) {
		u, ok := singleUpdate(message)
		if !ok {
			return
		}
		if n := len(u.byID(message)); n >= len(message) {
			t.Errorf("narrowed from %d to %d bytes", len(message), n)
		}
		u.find()
		u.matches(message)
	})
}
