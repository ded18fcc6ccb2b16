package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// start runs the program and gives its URI.
func start(t *testing.T) string {
	t.Helper()
	stdin, hold := io.Pipe()
	out, stdout := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(context.Background(), []string{"--data", t.TempDir()}, stdin, stdout, t.Output()) }()
	t.Cleanup(func() {
		_ = hold.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ready struct {
		URI string `json:"uri"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready.URI
}

// What FerretDB alone gets wrong: of many compare-and-sets on one version one
// wins.
func TestOneWriterWins(t *testing.T) {
	uri := start(t)
	const writers, rounds = 8, 20
	var wins atomic.Int64
	collections := make([]*mongo.Collection, writers)
	for i := range collections { // a client each, as processes have
		c, err := mongo.Connect(options.Client().ApplyURI(uri))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
		collections[i] = c.Database("test").Collection("things")
	}
	if _, err := collections[0].InsertOne(t.Context(), bson.D{{Key: "_id", Value: "x"}, {Key: "v", Value: 0}}); err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		var wg sync.WaitGroup
		for _, c := range collections {
			wg.Go(func() {
				res, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "x"}, {Key: "v", Value: round}},
					bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: round + 1}}}})
				if err != nil {
					t.Error(err)
					return
				}
				wins.Add(res.MatchedCount)
			})
		}
		wg.Wait()
	}
	if n := wins.Load(); n != rounds {
		t.Errorf("%d writers won %d rounds", n, rounds)
	}
}

func FuzzCommand(f *testing.F) {
	f.Add([]byte("\x1a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xdd\x07\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x10find\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if name, _ := command(message); len(name) > len(message) {
			t.Error("a name longer than its message")
		}
	})
}
