package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const testKey = "0123456789abcdef0123456789abcdef"

// instance is a server under test.
type instance struct {
	url   string
	ended <-chan struct{}
	stop  func() error // ends it and gives what run returned
}

// start runs the server on a file until the test ends, or until stop.
func start(t *testing.T, datastore string, stdin io.Reader, extra ...string) instance {
	t.Helper()
	args := append([]string{"--datastore", datastore, "--preshared-key-file", keyFile(t, testKey, 0o600)}, extra...)
	ctx, cancel := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	var result error // once ended is closed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = run(ctx, args, stdin, stdout, &stderr)
		_ = stdout.Close() // never fails
	}()
	stop := func() error {
		cancel()
		select {
		case <-ended:
			return result
		case <-time.After(time.Minute):
			return errors.New("still running a minute after the end was asked for")
		}
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if strings.Contains(stderr.String(), testKey) {
			t.Error("the key is in the log")
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no line on stdout: %v; run: %v", err, stop())
	}
	var announced ready
	if err := json.Unmarshal(line, &announced); err != nil || !announced.Ready {
		t.Fatalf("stdout %q: %v", line, err)
	}
	return instance{url: announced.HTTP, ended: ended, stop: stop}
}

func keyFile(t *testing.T, key string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(key+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// call sends body with a bearer token, checks the status and decodes the answer.
func (i instance) call(t *testing.T, method, path, token, body string, want int) map[string]any {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	request, err := http.NewRequestWithContext(t.Context(), method, i.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != want {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, response.StatusCode, want, text)
	}
	answer := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s %s: %q: %v", method, path, text, err)
		}
	}
	return answer
}

func text(t *testing.T, answer map[string]any, field string) string {
	t.Helper()
	value, ok := answer[field].(string)
	if !ok || value == "" {
		t.Fatalf("no %q in %v", field, answer)
	}
	return value
}

const model = `{"schema_version":"1.1","type_definitions":[
  {"type":"user"},
  {"type":"agent","relations":{"runner":{"this":{}}},
   "metadata":{"relations":{"runner":{"directly_related_user_types":[{"type":"user"}]}}}}]}`

const bearer = "Bearer " + testKey

func TestAnswersOnlyTheKey(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "fga.db"), nil)
	for name, token := range map[string]string{
		"none":         "",
		"wrong":        "Bearer " + strings.Repeat("x", len(testKey)),
		"prefix":       "Bearer " + testKey[:len(testKey)-1],
		"longer":       bearer + "0",
		"empty":        "Bearer ",
		"other scheme": "Basic " + testKey,
		"no scheme":    testKey,
	} {
		t.Run(name, func(t *testing.T) {
			server.call(t, http.MethodPost, "/stores", token, `{"name":"intruder"}`, http.StatusUnauthorized)
		})
	}
	stores := server.call(t, http.MethodGet, "/stores", bearer, "", http.StatusOK)
	if list, _ := stores["stores"].([]any); len(list) != 0 {
		t.Errorf("a refused request wrote: %v", stores)
	}
	server.call(t, http.MethodGet, "/healthz", "", "", http.StatusNoContent)
}

func TestTupleDecidesAndSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fga.db")
	server := start(t, path, nil)
	store := "/stores/" + text(t, server.call(t, http.MethodPost, "/stores", bearer, `{"name":"test"}`, http.StatusCreated), "id")
	id := text(t, server.call(t, http.MethodPost, store+"/authorization-models", bearer, model, http.StatusCreated), "authorization_model_id")
	tuple := `{"user":"user:anne","relation":"runner","object":"agent:demo"}`
	check := func(i instance, tuple string) bool {
		t.Helper()
		answer := i.call(t, http.MethodPost, store+"/check", bearer, `{"authorization_model_id":"`+id+`","tuple_key":`+tuple+`}`, http.StatusOK)
		allowed, _ := answer["allowed"].(bool)
		return allowed
	}
	if check(server, tuple) {
		t.Error("allowed before the tuple was written")
	}
	server.call(t, http.MethodPost, store+"/write", bearer, `{"writes":{"tuple_keys":[`+tuple+`]}}`, http.StatusOK)
	if !check(server, tuple) {
		t.Error("not allowed after the tuple was written")
	}
	if check(server, strings.Replace(tuple, "anne", "bob", 1)) {
		t.Error("somebody else is allowed")
	}
	carl := strings.Replace(tuple, "anne", "carl", 1)
	server.call(t, http.MethodPost, store+"/write", bearer, `{"writes":{"tuple_keys":[`+carl+`]}}`, http.StatusOK)
	page := server.call(t, http.MethodPost, store+"/read", bearer, `{"page_size":1}`, http.StatusOK)
	next := `{"page_size":1,"continuation_token":"` + text(t, page, "continuation_token") + `"}`
	page = server.call(t, http.MethodPost, store+"/read", bearer, next, http.StatusOK)
	if got, err := json.Marshal(page["tuples"]); err != nil || !strings.Contains(string(got), "user:carl") || strings.Contains(string(got), "user:anne") {
		t.Errorf("second page: %s, %v", got, err)
	}

	if err := server.stop(); err != nil {
		t.Fatal(err)
	}
	restarted := start(t, path, nil)
	if !check(restarted, tuple) {
		t.Error("the tuple is gone after a restart")
	}
	restarted.call(t, http.MethodPost, store+"/write", bearer, `{"deletes":{"tuple_keys":[`+tuple+`]}}`, http.StatusOK)
	if check(restarted, tuple) {
		t.Error("allowed after the tuple was deleted")
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "fga.db"), nil)
	store := "/stores/" + text(t, server.call(t, http.MethodPost, "/stores", bearer, `{"name":"test"}`, http.StatusCreated), "id")
	for name, body := range map[string]string{
		"not JSON":  `{"writes"`,
		"empty":     `{}`,
		"no such":   `{"writes":{"tuple_keys":[{"user":"user:a","relation":"nope","object":"agent:b"}]}}`,
		"too large": `{"writes":{"tuple_keys":[{"user":"` + strings.Repeat("a", 2*maxBodyBytes) + `"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			answer := server.call(t, http.MethodPost, store+"/write", bearer, body, http.StatusBadRequest)
			text(t, answer, "code")
		})
	}
	server.call(t, http.MethodGet, "/stores/01JD0000000000000000000000", bearer, "", http.StatusNotFound)
}

func TestDatastoreIsPrivate(t *testing.T) {
	dir := t.TempDir()
	server := start(t, filepath.Join(dir, "fga.db"), nil)
	server.call(t, http.MethodPost, "/stores", bearer, `{"name":"test"}`, http.StatusCreated)
	files, err := filepath.Glob(filepath.Join(dir, "fga.db*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("want the main file and its journal, got %v: %v", files, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", filepath.Base(file), info.Mode().Perm())
		}
	}
}

func TestEndsWithStdin(t *testing.T) {
	stdin, supervisor := io.Pipe()
	server := start(t, filepath.Join(t.TempDir(), "fga.db"), stdin, "--exit-with-stdin")
	server.call(t, http.MethodGet, "/healthz", "", "", http.StatusNoContent)
	if err := supervisor.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.ended:
	case <-time.After(time.Minute):
		t.Fatal("still serving a minute after stdin was closed")
	}
}

func TestRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	database := filepath.Join(dir, "fga.db")
	good := keyFile(t, testKey, 0o600)
	for name, args := range map[string][]string{
		"no datastore":       {"--preshared-key-file", good},
		"no key":             {"--datastore", database},
		"options in path":    {"--datastore", database + "?mode=memory", "--preshared-key-file", good},
		"every address":      {"--datastore", database, "--preshared-key-file", good, "--http-listen", "0.0.0.0:0"},
		"no host":            {"--datastore", database, "--preshared-key-file", good, "--http-listen", ":0"},
		"a name":             {"--datastore", database, "--preshared-key-file", good, "--http-listen", "localhost:0"},
		"argument":           {"--datastore", database, "--preshared-key-file", good, "serve"},
		"unknown flag":       {"--datastore", database, "--preshared-key-file", good, "--preshared-key", "x"},
		"key file missing":   {"--datastore", database, "--preshared-key-file", filepath.Join(dir, "none")},
		"key file for all":   {"--datastore", database, "--preshared-key-file", keyFile(t, testKey, 0o644)},
		"key short":          {"--datastore", database, "--preshared-key-file", keyFile(t, testKey[:minKeyBytes-1], 0o600)},
		"key with a newline": {"--datastore", database, "--preshared-key-file", keyFile(t, testKey+"\n"+testKey, 0o600)},
		"key too large":      {"--datastore", database, "--preshared-key-file", keyFile(t, strings.Repeat("k", maxKeyBytes+1), 0o600)},
		"datastore in no folder": {
			"--datastore", filepath.Join(dir, "none", "fga.db"), "--preshared-key-file", good,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout bytes.Buffer
			err := run(t.Context(), args, nil, &stdout, io.Discard)
			if err == nil {
				t.Fatal("it started")
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout %q", stdout.String())
			}
			if strings.Contains(err.Error(), testKey[:minKeyBytes-1]) {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
	if _, err := os.Stat(database); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused start made the datastore: %v", err)
	}
}
