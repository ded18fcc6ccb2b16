package openfga

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/process"
)

const key = "0123456789abcdef0123456789abcdef"

// program finds one of the programs that `make build` puts into ./bin, or into
// COFFERDAM_BIN_DIR. Without it this test can show nothing: on a build machine
// (CI=true) that is a failure.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("COFFERDAM_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "bin")
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

// server starts a real OpenFGA server on an empty database and gives its URL.
func server(t *testing.T) string {
	t.Helper()
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(t.Context(), process.Spec{
		Path:   program(t, "cofferdam-openfga"),
		Args:   []string{"--datastore", filepath.Join(t.TempDir(), "fga.db"), "--preshared-key-file", keyFile(t)},
		Stdout: childOut,
	})
	if err = errors.Join(err, childOut.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Stop(10*time.Second), out.Close()); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ready struct {
		HTTP string `json:"http"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready.HTTP
}

func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// allowed asks as the services do.
func allowed(t *testing.T, url string, ids IDs, subject, relation, object string) bool {
	t.Helper()
	a, err := openfgaauthz.New(openfgaauthz.Config{URL: url, StoreID: ids.Store, ModelID: ids.Model, KeyFile: keyFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	err = a.Check(t.Context(), subject, relation, object)
	if err != nil && !fault.Is(err, fault.AccessDenied) {
		t.Fatal(err)
	}
	return err == nil
}

func setup(t *testing.T, cfg Config) IDs {
	t.Helper()
	ids, err := Setup(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestWhoMayDoWhat(t *testing.T) {
	url := server(t)
	cfg := Config{
		URL: url, Key: key, IDs: filepath.Join(t.TempDir(), "ids"),
		Grants: Demo("user-1", "default", "operator", []string{"demo"}, []string{"fs.read_text_file"}),
	}
	ids := setup(t, cfg)
	for _, c := range []struct {
		subject, relation, object string
		want                      bool
	}{
		{"user-1", authz.CanInvoke, authz.AgentID("demo"), true},
		{"user-1", authz.CanInvoke, authz.ToolID("fs.read_text_file"), true},
		{"operator", authz.Operator, authz.System, true},
		{"user-1", authz.Operator, authz.System, false},
		{"user-1", authz.CanInvoke, authz.AgentID("other"), false},
		{"user-1", authz.CanInvoke, authz.ToolID("fs.list_directory"), false},
		{"operator", authz.CanInvoke, authz.AgentID("demo"), true}, // the page for people talks to it
		{"operator", authz.CanInvoke, authz.AgentID("other"), false},
		{"user-2", authz.CanInvoke, authz.AgentID("demo"), false},
	} {
		if got := allowed(t, url, ids, c.subject, c.relation, c.object); got != c.want {
			t.Errorf("%s %s %s: %v, want %v", c.subject, c.relation, c.object, got, c.want)
		}
	}
}

func TestASetupCanBeDoneAgain(t *testing.T) {
	url := server(t)
	// More than fits into one write and one page.
	agents := make([]string, 0, 230)
	for i := range cap(agents) {
		agents = append(agents, "agent-"+strings.Repeat("x", i%7)+"-"+string(rune('a'+i%26))+strings.Repeat("y", i/26))
	}
	cfg := Config{URL: url, Key: key, IDs: filepath.Join(t.TempDir(), "ids"), Grants: Demo("user-1", "default", "operator", agents, nil)}
	first := setup(t, cfg)
	if second := setup(t, cfg); second != first {
		t.Errorf("%+v became %+v", first, second)
	}
	cfg.Grants = append(cfg.Grants, Grant{authz.UserID("user-2"), authz.Member, authz.OrganizationID("default")})
	if third := setup(t, cfg); third != first {
		t.Errorf("%+v became %+v", first, third)
	}
	for _, a := range []string{agents[0], agents[len(agents)-1]} {
		if !allowed(t, url, first, "user-2", authz.CanInvoke, authz.AgentID(a)) {
			t.Errorf("a new member may not invoke %s", a)
		}
	}
}

func TestADatabaseThatWasTakenAwayIsSetUpAnew(t *testing.T) {
	cfg := Config{Key: key, IDs: filepath.Join(t.TempDir(), "ids"), Grants: Demo("user-1", "default", "operator", []string{"demo"}, nil)}
	cfg.URL = server(t)
	first := setup(t, cfg)
	cfg.URL = server(t)
	second := setup(t, cfg)
	if second.Store == first.Store || !allowed(t, cfg.URL, second, "user-1", authz.CanInvoke, authz.AgentID("demo")) {
		t.Errorf("%+v after %+v", second, first)
	}
}

func TestAnErrorTellsNoKey(t *testing.T) {
	url := server(t)
	_, err := Setup(t.Context(), Config{URL: url, Key: "wrong-" + key, IDs: filepath.Join(t.TempDir(), "ids")})
	if err == nil || strings.Contains(err.Error(), key) {
		t.Errorf("got %v, want an error without the key", err)
	}
}
