// Package mongodbstoretest gives tests a MongoDB server: the one that
// COFFERDAM_TEST_MONGODB_URI names, else FerretDB behind a proxy that lets one
// write through at a time (tools/ferretdb), which a test starts itself.
package mongodbstoretest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
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
	uri, stop, err := Start(context.WithoutCancel(tb.Context()), tb.TempDir(), tb.Output())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Errorf("FerretDB: %v", err)
		}
	})
	return uri
}

// Start is Server for programs that are no tests: it lasts until stop, and keeps
// what it has in the folder.
func Start(ctx context.Context, folder string, stderr io.Writer) (uri string, stop func() error, err error) {
	if uri := os.Getenv("COFFERDAM_TEST_MONGODB_URI"); uri != "" {
		return uri, func() error { return nil }, nil
	}
	path, err := program(ctx)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, path, "--data", folder)
	cmd.Env = append(os.Environ(), "GOGC=400") // it spends half its time on garbage
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		_ = stdin.Close() // it ends with its input
		return cmd.Wait()
	}
	if uri, err = ready(stdout); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return uri, stop, nil
}

func ready(stdout io.Reader) (string, error) {
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
			return "", fmt.Errorf("FerretDB said %q", raw)
		}
		return r.URI, nil
	case <-time.After(startTimeout):
		return "", errors.New("FerretDB did not answer")
	}
}

// program finds what `make bin/cofferdam-ferretdb` builds.
func program(ctx context.Context) (string, error) {
	dir := os.Getenv("COFFERDAM_BIN_DIR")
	if dir == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "bin")
	}
	path := filepath.Join(dir, "cofferdam-ferretdb")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run `make bin/cofferdam-ferretdb`", err)
	}
	return path, nil
}

// Open opens a new, empty database of the server, which is dropped at the end of
// the test. Whoever gets it closes it.
func Open(tb testing.TB, server string) *mongodbstore.DB {
	tb.Helper()
	return dropped(tb, URI(tb, server))
}

// OpenLossy is Open where answers get lost on the way (Lossy).
func OpenLossy(tb testing.TB, server string) *mongodbstore.DB {
	tb.Helper()
	return dropped(tb, Lossy(tb, server))
}

func dropped(tb testing.TB, uri string) *mongodbstore.DB {
	tb.Helper()
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
	uri, err := NewDatabase(server)
	if err != nil {
		tb.Fatal(err)
	}
	return uri
}

// NewDatabase names one of the server.
func NewDatabase(server string) (uri string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the server's URI is none") // the error has the URI in it
	}
	u.Path = "/test_" + strings.ToLower(rand.Text())
	return u.String(), nil
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
