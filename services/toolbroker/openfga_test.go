package toolbroker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/process"
)

// program finds one of the programs that `make build` puts into ./bin, or into
// COFFERDAM_BIN_DIR. Without it this test can show nothing: on a build machine
// (CI=true) that is a failure.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("COFFERDAM_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		say := t.Skipf
		if os.Getenv("CI") == "true" {
			say = t.Fatalf
		}
		say("NOT TESTED: %v; run `make build` first", err)
	}
	return path
}

const fgaKey = "0123456789abcdef0123456789abcdef"

// authorization is the real OpenFGA server of all tests of this package; each
// test has a store of its own.
var authorization openfgaServer

type openfgaServer struct {
	once    sync.Once
	dir     string
	url     string
	process *process.Process
	err     error
}

func (f *openfgaServer) start(path string) {
	f.dir, f.err = os.MkdirTemp("", "openfga")
	if f.err == nil {
		f.err = os.WriteFile(f.keyFile(), []byte(fgaKey), 0o600)
	}
	out, childOut, err := os.Pipe()
	if f.err = errors.Join(f.err, err); f.err != nil {
		return
	}
	f.process, err = process.Start(context.Background(), process.Spec{
		Path: path, Args: []string{"--datastore", filepath.Join(f.dir, "fga.db"), "--preshared-key-file", f.keyFile()}, Stdout: childOut,
	})
	if f.err = errors.Join(err, childOut.Close()); f.err != nil {
		return
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct {
		HTTP string `json:"http"`
	}
	f.err = errors.Join(err, json.Unmarshal(line, &ready), out.Close())
	f.url = ready.HTTP
}

func (f *openfgaServer) keyFile() string { return filepath.Join(f.dir, "key") }

func (f *openfgaServer) stop() error {
	if f.process == nil {
		return nil
	}
	return errors.Join(f.process.Stop(5*time.Second), os.RemoveAll(f.dir))
}

// grants is a store with the project's own model.
type grants struct {
	url   string
	store string
	model string
}

func newGrants(t *testing.T) *grants {
	t.Helper()
	path := program(t, "cofferdam-openfga")
	authorization.once.Do(func() { authorization.start(path) })
	must(t, authorization.err)
	g := &grants{url: authorization.url}
	g.store = g.post(t, "/stores", map[string]any{"name": "test"}).StoreID
	g.model = g.post(t, "/stores/"+g.store+"/authorization-models", json.RawMessage(authz.ModelJSON())).ModelID
	return g
}

func (g *grants) config() openfgaauthz.Config {
	return openfgaauthz.Config{URL: g.url, StoreID: g.store, ModelID: g.model, KeyFile: authorization.keyFile()}
}

// allow lets a subject invoke objects; forbid takes that back.
func (g *grants) allow(t *testing.T, user string, objects ...string) {
	t.Helper()
	g.write(t, "writes", user, objects)
}

func (g *grants) forbid(t *testing.T, user string, objects ...string) {
	t.Helper()
	g.write(t, "deletes", user, objects)
}

func (g *grants) write(t *testing.T, what, user string, objects []string) {
	t.Helper()
	var tuples []map[string]string
	for _, o := range objects {
		tuples = append(tuples, map[string]string{"user": user, "relation": authz.CanInvoke, "object": o})
	}
	g.post(t, "/stores/"+g.store+"/write", map[string]any{what: map[string]any{"tuple_keys": tuples}})
}

// created is what OpenFGA says of what it made, or decided.
type created struct {
	StoreID string `json:"id"`
	ModelID string `json:"authorization_model_id"`
	Allowed bool   `json:"allowed"`
}

func (g *grants) post(t *testing.T, path string, body any) created {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+path, bytes.NewReader(text))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+fgaKey)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	res, err := client.Do(req)
	must(t, err)
	answer, err := io.ReadAll(res.Body)
	must(t, errors.Join(err, res.Body.Close()))
	if res.StatusCode/100 != 2 {
		t.Fatal(fmt.Errorf("%s: %d %s", path, res.StatusCode, answer))
	}
	var out created
	must(t, json.Unmarshal(answer, &out))
	return out
}
