//go:build benchtools

package bindingstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	_ "modernc.org/sqlite"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/pkg/storeaddr"
)

const (
	rounds     = 3 // of both rates, in turns
	committers = 16
)

// effort is how much is done on a back end.
type effort struct {
	// perRound are commits, and bare writes; probes commits one after the other, for
	// a median with each number of bindings.
	perRound, probes int
	bindings         []int
}

// bare is the database without us: the same conditional write of a document of the
// same size, with the same durability.
type bare interface {
	// prepare makes n documents of so many bytes.
	prepare(ctx context.Context, n, bytes int) error
	// write changes one of them, once, from version 1.
	write(ctx context.Context, i int) error
	// fill makes so many further records like the one of the id, without a run.
	fill(ctx context.Context, id string, n int) error
}

// stateFigures is the closing line, one for each back end.
type stateFigures struct {
	Target   string             `json:"target"`
	Backend  string             `json:"back_end"`
	Bare     float64            `json:"bare_ops_per_s"`
	Commit   float64            `json:"commit_ops_per_s"`
	Ratio    float64            `json:"ratio"`
	At1      float64            `json:"p50_ms_at_1,omitempty"`
	At100000 float64            `json:"p50_ms_at_100000,omitempty"`
	ByCount  map[string]float64 `json:"p50_ms_by_bindings"`
}

// TestBenchState is `make bench-state`: the commit of a head (write 5: the record is
// read, judged and written where it has not changed) beside the bare conditional
// write, and its median with ever more bindings beside.
func TestBenchState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	whole := effort{320, 100, []int{1, 100, 10_000, 100_000}}
	figures(t, "sqlite", path, openSQLite(t, path), whole)
	if server := mongodbstoretest.Server(t); mongodbstoretest.External() {
		uri := mongodbstoretest.URI(t, server)
		figures(t, "mongodb", uri, bareMongo{mongodbstoretest.Reopen(t, uri).Collection("bench")}, whole)
	} else {
		// It looks at every document for each write, so that only its function counts.
		uri := mongodbstoretest.URI(t, server)
		figures(t, "ferretdb", uri, bareMongo{mongodbstoretest.Reopen(t, uri).Collection("bench")}, effort{32, 10, []int{100, 1000}})
	}
}

func figures(t *testing.T, name, location string, b bare, e effort) {
	t.Helper()
	ctx := t.Context()
	store, err := bindingstore.Open(ctx, storeaddr.Address{Location: location}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	c := &commits{store: store, writer: binding.NewWriter(store, time.Now)}
	out := stateFigures{Target: "bench-state", Backend: name, ByCount: map[string]float64{}}
	size := 0
	for n, want := range e.bindings {
		first := c.ready(t, e.probes)
		if n == 0 {
			size = c.size(t, first[0])
		}
		if more := want - c.made; more > 0 {
			if err := b.fill(ctx, first[0].env.BindingID, more); err != nil {
				t.Fatal(err)
			}
			c.made += more
		}
		p50 := c.median(t, first)
		out.ByCount[fmt.Sprint(want)] = p50
		t.Logf("%s: %d bindings: %.2f ms", name, want, p50)
	}
	out.At1, out.At100000 = out.ByCount["1"], out.ByCount["100000"]
	if err := b.prepare(ctx, rounds*e.perRound, size); err != nil {
		t.Fatal(err)
	}
	var commit, raw time.Duration
	for r := range rounds {
		ready := c.ready(t, e.perRound)
		raw += atOnce(t, e.perRound, func(i int) error { return b.write(ctx, r*e.perRound+i) })
		commit += atOnce(t, e.perRound, func(i int) error { return c.commit(ctx, ready[i]) })
	}
	all := float64(rounds * e.perRound)
	out.Bare, out.Commit = all/raw.Seconds(), all/commit.Seconds()
	out.Ratio = out.Commit / out.Bare
	line, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(os.Stdout, string(line))
	must(t, err)
}

// atOnce does n operations, committers of them at a time.
func atOnce(t *testing.T, n int, do func(i int) error) time.Duration {
	t.Helper()
	begun := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, committers)
	for w := range committers {
		wg.Go(func() {
			for i := w; i < n; i += committers {
				errs[w] = errors.Join(errs[w], do(i))
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return took
}

// commits makes runs that are ready for their commit.
type commits struct {
	store  binding.Backend
	writer *binding.Writer
	made   int
}

type due struct {
	env   fence.Envelope
	grant fence.Grant
}

func (c *commits) ready(t *testing.T, n int) []due {
	t.Helper()
	ctx := t.Context()
	guard := fence.NewGuard(c.writer, time.Now)
	out := make([]due, n)
	for i := range out {
		id := "hs_bench_" + rand.Text()
		_, _, err := c.store.Insert(ctx, binding.Record{ID: id, Identity: binding.Identity{
			Environment: "bench", Subject: "user-" + id, Organization: "default", AgentID: "demo", AgentVersion: 1, ConversationID: "c",
			HarnessID: "native", AdapterVersion: "1", ContractVersion: 1,
		}})
		must(t, err)
		_, err = c.writer.Replace(ctx, id, 0, 0, func(g uint32) string { return binding.ClaimName(id, g) }, "")
		must(t, err)
		run := binding.RunID(id, 0, "k")
		deadline := time.Now().Add(time.Hour)
		_, err = c.writer.Start(ctx, binding.StartParams{BindingID: id, RunID: run, RequestID: "q", KeyDigest: "k", ContentDigest: "c", Deadline: deadline, Owner: "o"})
		must(t, err)
		env := fence.Envelope{BindingID: id, Generation: 1, RunID: run, RequestID: "q", IdempotencyKey: "head", Deadline: deadline}
		g, err := guard.Admit(ctx, env)
		must(t, err)
		_, err = c.writer.Append(ctx, g, "o", binding.Batch{Nonce: rand.Text(), Events: []json.RawMessage{json.RawMessage(`{"type":"text.delta","delta":"a word"}`)}})
		must(t, err)
		out[i] = due{env, g}
		c.made++
	}
	return out
}

func (c *commits) commit(ctx context.Context, d due) error {
	_, _, err := c.writer.CommitHead(ctx, d.grant, binding.HeadCommit{
		Codec: "bench", CodecVersion: 1, SnapshotRef: "snap_" + d.env.RunID, SHA256: "x", IdempotencyDigest: d.env.RunID,
	})
	return err
}

// median of commits one after the other, in milliseconds.
func (c *commits) median(t *testing.T, ready []due) float64 {
	t.Helper()
	took := make([]time.Duration, len(ready))
	for i, d := range ready {
		begun := time.Now()
		must(t, c.commit(t.Context(), d))
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000
}

// size of a record as it is written.
func (c *commits) size(t *testing.T, d due) int {
	t.Helper()
	r, err := c.store.Load(t.Context(), d.env.BindingID)
	must(t, err)
	raw, err := json.Marshal(r)
	must(t, err)
	return len(raw)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bareSQLite is a table in the same file, with the settings of ours.
type bareSQLite struct{ db *sql.DB }

func openSQLite(t *testing.T, path string) bareSQLite {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	must(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return bareSQLite{db}
}

func (b bareSQLite) prepare(ctx context.Context, n, bytes int) error {
	_, err := b.db.ExecContext(ctx, `CREATE TABLE bench (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, doc BLOB NOT NULL);
		WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1) INSERT INTO bench SELECT i, 1, randomblob(?) FROM n`, n, bytes)
	return err
}

func (b bareSQLite) write(ctx context.Context, i int) error {
	res, err := b.db.ExecContext(ctx, `UPDATE bench SET version = version + 1, doc = randomblob(length(doc)) WHERE id = ? AND version = 1`, i)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows changed: %w", n, err)
	}
	return nil
}

func (b bareSQLite) fill(ctx context.Context, id string, n int) error {
	_, err := b.db.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO binding_records SELECT 'hs_fill_' || hex(randomblob(16)) || i, 1, epoch, generation, '', '', '', instance, 0, doc
		FROM n, (SELECT * FROM binding_records WHERE id = ?)`, n, id)
	return err
}

// bareMongo is a collection in the same database.
type bareMongo struct{ c *mongo.Collection }

func (b bareMongo) prepare(ctx context.Context, n, bytes int) error {
	doc := make([]byte, bytes)
	_, _ = rand.Read(doc) // it never fails
	docs := make([]any, n)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: i}, {Key: "version", Value: 1}, {Key: "doc", Value: doc}}
	}
	_, err := b.c.InsertMany(ctx, docs)
	return err
}

func (b bareMongo) write(ctx context.Context, i int) error {
	doc := make([]byte, 1<<10)
	_, _ = rand.Read(doc)
	res, err := b.c.UpdateOne(ctx, bson.D{{Key: "_id", Value: i}, {Key: "version", Value: 1}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 2}, {Key: "doc", Value: doc}}}})
	if err != nil {
		return err
	}
	if res.ModifiedCount != 1 {
		return fmt.Errorf("%d documents changed", res.ModifiedCount)
	}
	return nil
}

func (b bareMongo) fill(ctx context.Context, id string, n int) error {
	records := b.c.Database().Collection("bindings")
	var one bson.M
	if err := records.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&one); err != nil {
		return err
	}
	delete(one, "live")
	one["busy"] = false
	for n > 0 {
		docs := make([]any, min(n, 1000))
		for i := range docs {
			doc := maps.Clone(one)
			doc["_id"] = "hs_fill_" + rand.Text()
			docs[i] = doc
		}
		if _, err := records.InsertMany(ctx, docs); err != nil {
			return err
		}
		n -= len(docs)
	}
	return nil
}
