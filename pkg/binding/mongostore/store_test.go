package mongostore_test

import (
	"encoding/json"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/binding/mongostore"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	t.Parallel()
	server := mongodbstoretest.Server(t)
	bindingtest.Run(t, func(t *testing.T) binding.Backend {
		t.Helper()
		s, err := mongostore.Open(t.Context(), mongodbstoretest.OpenLossy(t, server))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// A database of a program that forgot nothing is taken over, as often as it is opened;
// and who was killed while it forgot a log left one that is found.
func TestRunsOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	db := mongodbstoretest.OpenLossy(t, mongodbstoretest.Server(t))
	at := time.Date(2026, 11, 2, 3, 4, 5, 123456000, time.UTC)
	runs := db.Collection("runs")
	_, err := runs.InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "run_1"},
		{Key: "binding", Value: "hs_1"},
		{Key: "doc", Value: []byte(`{"run_id":"run_1","binding_id":"hs_1","ended_at":"2026-11-02T03:04:05.123456789Z"}`)},
	})
	must(t, err)
	s, err := mongostore.Open(t.Context(), db)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	_, err = s.PutChunk(t.Context(), binding.Chunk{RunID: "run_1", Batches: []binding.Batch{{Nonce: "n", Events: []json.RawMessage{[]byte("{}")}}}})
	must(t, err)
	found := func() int {
		t.Helper()
		got, err := s.EndedRuns(t.Context(), at.Add(time.Second), binding.EndedRun{}, 10)
		must(t, err)
		for _, r := range got {
			if want := (binding.EndedRun{RunID: "run_1", BindingID: "hs_1", EndedAt: at}); r != want {
				t.Fatalf("%+v, want %+v", r, want)
			}
		}
		return len(got)
	}
	if n := found(); n != 1 {
		t.Fatalf("%d runs are found", n)
	}
	_, err = runs.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "run_1"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "forgotten", Value: true}}}})
	must(t, err)
	if n := found(); n != 1 {
		t.Fatalf("of one that is half forgotten %d are found", n)
	}
	must(t, s.ForgetLog(t.Context(), "run_1"))
	chunks, err := s.Chunks(t.Context(), "run_1", 0, 10)
	must(t, err)
	if n := found(); n != 0 || len(chunks) != 0 {
		t.Fatalf("%d runs and %d chunks are left", n, len(chunks))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
