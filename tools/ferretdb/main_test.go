package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
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
	go func() {
		done <- run(context.WithoutCancel(t.Context()), []string{"--data", t.TempDir()}, stdin, stdout, t.Output())
	}()
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
		t.Cleanup(func() { _ = c.Disconnect(context.WithoutCancel(t.Context())) })
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

// message is one with a command, whose body comes after a sequence of documents.
func message(t *testing.T, command bson.D) []byte {
	t.Helper()
	doc, err := bson.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	sequence := []byte{1, 11, 0, 0, 0, 'u', 'p', 'd', 'a', 't', 'e', 0}
	m := make([]byte, headerBytes+flagBytes, 256)
	binary.LittleEndian.PutUint32(m[12:], opMsg)
	m = append(append(append(m, sequence...), sectionBody), doc...)
	binary.LittleEndian.PutUint32(m, uint32(len(m))) //nolint:gosec // a short one
	return m
}

// FerretDB is given no time of its own, and everything else as it came.
func TestCommandsHaveNoTime(t *testing.T) {
	inner := bson.D{{Key: "maxTimeMS", Value: int64(7)}}
	m := message(t, bson.D{{Key: "find", Value: "things"}, {Key: "filter", Value: inner}, {Key: "maxTimeMS", Value: int64(5)}})
	want := message(t, bson.D{{Key: "find", Value: "things"}, {Key: "filter", Value: inner}, {Key: "apiStrict", Value: int64(5)}})
	if withoutTime(m); !bytes.Equal(m, want) {
		t.Errorf("got %q, want %q", m, want)
	}
	if name, silent := command(m); name != "find" || silent {
		t.Errorf("the command is %q, %v", name, silent)
	}
}

func FuzzCommand(f *testing.F) {
	f.Add([]byte("\x1a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xdd\x07\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x10find\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		withoutTime(message)
		if name, _ := command(message); len(name) > len(message) {
			t.Error("a name longer than its message")
		}
	})
}
