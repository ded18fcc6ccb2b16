package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// refused checks that an answer refuses with a status and a code.
func refused(t *testing.T, what string, err error, status int, code string) {
	t.Helper()
	var e *apiclient.Error
	if !errors.As(err, &e) || e.Status != status || e.Code != code {
		t.Errorf("%s: %v, want %d %s", what, err, status, code)
		return
	}
	if e.Category == "" || e.Message == "" || e.IncidentID == "" {
		t.Errorf("%s: an incomplete error: %+v", what, e)
	}
}

// What belongs to somebody else is not there, and nothing can be done to it.
func TestARunOfAnotherCallerIsNotFound(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	other, err := w.Client(t.Context(), "user-2")
	if err != nil {
		t.Fatal(err)
	}
	c := w.talk()
	run := c.begin(t, ">>say mine\n>>sleep 60000")
	c.sees(t, run.RunID, "text.delta")
	ctx := t.Context()

	_, err = other.Run(ctx, run.RunID)
	refused(t, "status", err, http.StatusNotFound, "not_found")
	_, err = other.Events(ctx, run.RunID, nil, 10)
	refused(t, "events", err, http.StatusNotFound, "not_found")
	for _, protocol := range []string{"", "canonical", "agui"} {
		_, err = other.OpenStream(ctx, run.RunID, protocol, nil)
		refused(t, "stream "+protocol, err, http.StatusNotFound, "not_found")
	}
	_, err = other.Cancel(ctx, run.RunID)
	refused(t, "cancel", err, http.StatusNotFound, "not_found")
	_, err = other.Run(ctx, "run_"+rand.Text())
	refused(t, "status of no run", err, http.StatusNotFound, "not_found")

	// The other one may not use the agent either, whoever's conversation it names.
	_, err = other.Start(ctx, apiclient.Start{AgentID: stack.Agent, ConversationID: c.conversation, Message: "hello"})
	refused(t, "start", err, http.StatusForbidden, "access_denied")
	_, err = w.user.Start(ctx, apiclient.Start{AgentID: "nobody", ConversationID: c.conversation, Message: "hello"})
	refused(t, "an agent that is not there", err, http.StatusForbidden, "access_denied")

	if status, err := w.user.Run(ctx, run.RunID); err != nil || status.State != "running" || status.End != "" {
		t.Errorf("after all that: %+v, %v", status, err)
	}
	if _, err := w.user.Cancel(ctx, run.RunID); err != nil {
		t.Fatal(err)
	}
	c.end(t, run).cancelled(t)
}

func TestOnlyAnOperatorSeesBindings(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	r := w.talk().tell(t, ">>say here")
	user, err := w.OperatorClient(t.Context(), stack.User)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = user.Bindings(t.Context(), "")
	refused(t, "list", err, http.StatusForbidden, "access_denied")
	_, err = user.Binding(t.Context(), r.BindingID)
	refused(t, "one", err, http.StatusForbidden, "access_denied")
	_, err = w.operator.Binding(t.Context(), "hs_"+strings.Repeat("a", 43))
	refused(t, "none", err, http.StatusNotFound, "not_found")
	// The public port does not have the route at all.
	_, err = w.user.Binding(t.Context(), r.BindingID)
	refused(t, "public", err, http.StatusNotFound, "not_found")

	found := false
	for after := ""; !found; {
		page, next, err := w.operator.Bindings(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page {
			found = found || b.BindingID == r.BindingID
		}
		if after = next; next == "" {
			break
		}
	}
	if !found {
		t.Errorf("%s is not listed", r.BindingID)
	}
}

// Nobody gets in without a token of the issuer.
func TestACallerWithoutAGoodTokenIsNobody(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	good := bearer(t, w.user.Authorization())
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	for name, header := range map[string]string{
		"no token":        "",
		"another scheme":  "Basic " + encode([]byte("user-1:password")),
		"no JWT":          "Bearer hello",
		"alg none":        "Bearer " + encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + ".",
		"no signature":    "Bearer " + parts[0] + "." + parts[1] + ".",
		"other claims":    "Bearer " + parts[0] + "." + encode([]byte(`{"iss":"https://issuer.cofferdam.local","sub":"operator","aud":"cofferdam","exp":9999999999}`)) + "." + parts[2],
		"other signature": "Bearer " + parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])),
		"two tokens":      "Bearer " + good + " " + good,
		"nothing":         "Bearer ",
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			for _, base := range []string{w.API, w.Operator} {
				c := w.withHeader(t, base, header)
				for _, path := range []string{"/api/v1/runs/run_x", "/api/v1/bindings", "/api/v1/harnesses", "/nowhere"} {
					a, err := c.Do(t.Context(), http.MethodGet, path, "", nil)
					if err != nil {
						t.Fatal(err)
					}
					refused(t, path, a.Err(), http.StatusUnauthorized, "unauthenticated")
					if a.Header.Get("WWW-Authenticate") == "" {
						t.Errorf("%s: no WWW-Authenticate", path)
					}
				}
			}
		})
	}
}

// withHeader is a client that sends any header, or none.
func (w *world) withHeader(t *testing.T, base, header string) *apiclient.Client {
	t.Helper()
	file := ""
	if header != "" {
		file = filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("Authorization: "+header+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := apiclient.New(base, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
