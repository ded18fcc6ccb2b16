// Package mongodbstoretest gives tests a MongoDB server: the one that
// COFFERDAM_TEST_MONGODB_URI names, else FerretDB behind a proxy that lets one
// write through at a time (tools/ferretdb), which a test starts itself.
package mongodbstoretest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/storeaddr"
)

// startTimeout is how long the server may take to answer.
const startTimeout = 30 * time.Second

// External reports whether the tests use a real server.
func External() bool { return os.Getenv("COFFERDAM_TEST_MONGODB_URI") != "" }

// Server gives the URI of a server that lasts as long as the test, without a
// database.
func Server(tb testing.TB) string {
	tb.Helper()
	if uri := os.Getenv("COFFERDAM_TEST_MONGODB_URI"); uri != "" {
		return uri
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program(tb), "--data", tb.TempDir())
	cmd.Stderr = tb.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = stdin.Close() // it ends with its input
		if err := cmd.Wait(); err != nil {
			tb.Errorf("FerretDB: %v", err)
		}
	})
	return ready(tb, stdout)
}

func ready(tb testing.TB, stdout io.Reader) string {
	tb.Helper()
	line := make(chan []byte, 1)
	go func() {
		raw, _ := bufio.NewReader(stdout).ReadBytes('\n')
		line <- raw
	}()
	select {
	case raw := <-line:
		var r struct {
			URI string `json:"uri"`
		}
		if err := json.Unmarshal(raw, &r); err != nil || r.URI == "" {
			tb.Fatalf("FerretDB said %q", raw)
		}
		return r.URI
	case <-time.After(startTimeout):
		tb.Fatal("FerretDB did not answer")
		return ""
	}
}

// program finds what `make bin/cofferdam-ferretdb` builds.
func program(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("COFFERDAM_BIN_DIR")
	if dir == "" {
		out, err := exec.CommandContext(tb.Context(), "go", "env", "GOWORK").Output()
		if err != nil {
			tb.Fatal(err)
		}
		dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "bin")
	}
	path := filepath.Join(dir, "cofferdam-ferretdb")
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%v: run `make bin/cofferdam-ferretdb`", err)
	}
	return path
}

// Open opens a new, empty database of the server, which is dropped at the end of
// the test. Whoever gets it closes it.
func Open(tb testing.TB, server string) *mongodbstore.DB {
	tb.Helper()
	uri := URI(tb, server)
	tb.Cleanup(func() {
		db := Reopen(tb, uri)
		defer func() { _ = db.Close() }() // only drops
		if err := db.Drop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("drop: %v", err)
		}
	})
	return Reopen(tb, uri)
}

// URI names a new database of the server.
func URI(tb testing.TB, server string) string {
	tb.Helper()
	u, err := url.Parse(server)
	if err != nil {
		tb.Fatal("the server's URI is none")
	}
	u.Path = "/test_" + strings.ToLower(rand.Text())
	return u.String()
}

// Reopen opens a database once more.
func Reopen(tb testing.TB, uri string) *mongodbstore.DB {
	tb.Helper()
	db, err := mongodbstore.Open(context.WithoutCancel(tb.Context()), mongodbstore.Config{Address: storeaddr.Address{Location: uri}})
	if err != nil {
		tb.Fatal(err)
	}
	return db
}
