package toolbroker

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

// voucher answers for the capability service: it asserts the committed subject of
// the run that the shown capability is for.
type voucher struct {
	keeper

	mu       sync.Mutex
	listed   string
	asserted []string // assertions that were given
}

func (v *voucher) Assert(ctx context.Context, req *capabilityv1.AssertRequest) (*capabilityv1.AssertResponse, error) {
	claims, err := v.stand.Minter.Verifier().Verify(ctx, req.GetSubjectToken(), capability.ToolBroker, rpctest.SandboxID())
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if req.GetAudience() != v.listed {
		return nil, fault.New(fault.AudienceMismatch, "test")
	}
	r, err := v.stand.Writer.Backend().Load(ctx, claims.BindingID)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	payload, err := json.Marshal(map[string]any{
		"iss": v.stand.Minter.Issuer(), "sub": r.Identity.Subject, "aud": req.GetAudience(), "jti": fmt.Sprint("asr_", len(v.asserted)),
		"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	})
	if err != nil {
		return nil, err
	}
	a := v.stand.Minter.Mint(capability.Claims{}, capabilitytest.WithType(capability.AssertionType), capabilitytest.WithPayload(payload))
	v.asserted = append(v.asserted, a)
	return &capabilityv1.AssertResponse{Assertion: a}, nil
}

// given are the assertions so far.
func (v *voucher) given() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.asserted)
}

// tokenEndpoint is one of RFC 8693: it takes an assertion by the issuer's key set,
// and gives a token that is the subject's.
type tokenEndpoint struct {
	url    string
	keys   capability.KeySet
	issuer string
	life   int

	mu      sync.Mutex
	tokens  map[string]string // by token, whose it is
	revoked map[string]bool   // subjects that get none
	shown   []string          // assertions
	wrong   []string
	serve   http.HandlerFunc // in place of it, if set
}

const endpointSecret = "the-brokers-own-secret-93"

func newTokenEndpoint(t *testing.T, stand *rpctest.Stand) (*tokenEndpoint, *catalogue.Egress) {
	t.Helper()
	keys, err := capability.ParseKeySet(stand.Minter.JWKS())
	must(t, err)
	e := &tokenEndpoint{keys: keys, issuer: stand.Minter.Issuer(), life: 3600, tokens: map[string]string{}, revoked: map[string]bool{}}
	s := httptest.NewTLSServer(e)
	t.Cleanup(s.Close)
	e.url = s.URL + "/token"
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	return e, &catalogue.Egress{AllowCIDRs: []string{"127.0.0.1/32"}, CAFile: ca}
}

// subjectOf verifies an assertion.
func (e *tokenEndpoint) subjectOf(ctx context.Context, assertion string) (string, error) {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return "", errors.New("not a JWS")
	}
	var raw [3][]byte
	for i, p := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return "", err
		}
	}
	var h struct{ Typ, Alg, Kid string }
	var c struct {
		Issuer   string `json:"iss"`
		Subject  string `json:"sub"`
		Audience string `json:"aud"`
		Expiry   int64  `json:"exp"`
	}
	if err := errors.Join(json.Unmarshal(raw[0], &h), json.Unmarshal(raw[1], &c)); err != nil {
		return "", err
	}
	key, err := e.keys.Key(ctx, h.Kid)
	switch {
	case err != nil:
		return "", err
	case h.Typ != capability.AssertionType || h.Alg != "EdDSA" || !ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), raw[2]):
		return "", errors.New("not signed, or something else")
	case c.Issuer != e.issuer || c.Audience != e.url || c.Expiry < time.Now().Unix():
		return "", errors.New("not for here")
	}
	return c.Subject, nil
}

func (e *tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	other := e.serve
	e.mu.Unlock()
	if other != nil {
		other(w, r)
		return
	}
	id, secret, _ := r.BasicAuth()
	err := r.ParseForm()
	subject := ""
	if err == nil {
		subject, err = e.subjectOf(r.Context(), r.PostForm.Get("subject_token"))
	}
	if id != "broker" || secret != endpointSecret || r.PostForm.Get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" ||
		r.PostForm.Get("subject_token_type") != "urn:ietf:params:oauth:token-type:jwt" || r.PostForm.Get("audience") != "the-server" ||
		len(r.PostForm["subject_token"]) != 1 || r.PostForm.Has("actor_token") {
		err = errors.Join(err, errors.New("not the request of RFC 8693"))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = append(e.shown, r.PostForm.Get("subject_token"))
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		e.wrong = append(e.wrong, err.Error())
	}
	if err != nil || e.revoked[subject] {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q}`, r.PostForm.Get("subject_token"))
		return
	}
	token := fmt.Sprintf("canary-of-%s-%d", subject, len(e.tokens))
	e.tokens[token] = subject
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":%d}`, token, e.life)
}

func (e *tokenEndpoint) behave(h http.HandlerFunc) { e.mu.Lock(); e.serve = h; e.mu.Unlock() }

// revoke takes the subject's tokens back, and gives no further ones.
func (e *tokenEndpoint) revoke(subject string, revoked bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revoked[subject] = revoked
	for token, whose := range e.tokens {
		if whose == subject {
			e.tokens[token] = ""
		}
	}
}

// owner is whose token that is, or "".
func (e *tokenEndpoint) owner(token string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tokens[token]
}

// exchanges is how often a token was asked for, what was wrong with that, and which
// secrets have passed.
func (e *tokenEndpoint) exchanges() (n int, wrong, secrets []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	secrets = append(slices.Clone(e.shown), endpointSecret)
	for token := range e.tokens {
		secrets = append(secrets, token)
	}
	return len(e.shown), slices.Clone(e.wrong), secrets
}

// ownServer is an MCP server that tells each subject who it is, by the token, and
// that gives each session to the one who began it.
type ownServer struct {
	endpoint *tokenEndpoint
	listing  string // the token that tools are listed with; "" is none

	mu       sync.Mutex
	sessions map[string]string // by id, whose it is
	crossed  []string          // requests in a session of somebody else
	begun    int
	ended    int
	calls    int
}

func (s *ownServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	whose := s.endpoint.owner(given)
	if whose == "" && given == s.listing {
		whose = "nobody"
	}
	if whose == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_ = json.Unmarshal(body, &q) // a GET has none
	id := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" && s.sessions[id] != whose {
		s.crossed = append(s.crossed, fmt.Sprintf("%s in the session of %q", whose, s.sessions[id]))
	}
	result := ""
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case r.Method == http.MethodDelete:
		s.ended++
	case q.Method == "initialize":
		s.begun++
		id = fmt.Sprint("session-", s.begun)
		s.sessions[id] = whose
		w.Header().Set("Mcp-Session-Id", id)
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"own","version":"1"}}`
	case q.Method == "tools/list":
		result = `{"tools":[{"name":"whoami","inputSchema":{"type":"object"}}]}`
	case q.Method == "tools/call":
		s.calls++
		result = fmt.Sprintf(`{"content":[{"type":"text","text":"you are %s with %s"}]}`, whose, given)
	}
	switch {
	case result != "":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
	case len(q.ID) > 0:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, q.ID)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// seen is what happened there.
func (s *ownServer) seen() (begun, calls int, crossed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun, s.calls, slices.Clone(s.crossed)
}

// exchanging is a session with a server that wants each subject's own token, as
// namespace own.
type exchanging struct {
	*session

	voucher  *voucher
	endpoint *tokenEndpoint
	server   *ownServer
	other    *rpctest.Stand // another subject's binding, user-2
}

func newExchanging(t *testing.T) *exchanging {
	t.Helper()
	stand := rpctest.NewStand(t)
	x := &exchanging{voucher: &voucher{keeper: keeper{stand: stand}}}
	var egress *catalogue.Egress
	x.endpoint, egress = newTokenEndpoint(t, stand)
	x.voucher.listed = x.endpoint.url
	x.server = &ownServer{endpoint: x.endpoint, sessions: map[string]string{}, listing: "token-to-list-with"}
	served := httptest.NewServer(x.server)
	t.Cleanup(func() { hostile.End(served) })
	secret, listing := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "listing")
	must(t, os.WriteFile(secret, []byte(endpointSecret), 0o600))
	must(t, os.WriteFile(listing, []byte(x.server.listing), 0o600))
	capabilities, _ := x.voucher.serveWith(t, x.voucher)
	o := openWith(t, stand, func(c *catalogue.Config) {
		c.Servers = append(c.Servers, catalogue.Server{
			Namespace: "own", Transport: catalogue.TransportHTTP, URL: served.URL + "/mcp", Tools: []string{"whoami"}, Timeout: "6s", Egress: egress,
			Credential: &catalogue.Credential{
				Source: catalogue.SourceTokenExchange, TokenURL: x.endpoint.url, ClientID: "broker", ClientSecretFile: secret, Audience: "the-server",
			},
			ListingCredential: &catalogue.Credential{Source: catalogue.SourceFile, Path: listing},
		})
	}, func(c *Config) {
		c.CapabilityURL, c.CapabilityID = capabilities, rpctest.ServiceID("capability").String()
	})
	x.session = sessionOf(t, o)
	x.other = stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	o.grants.allow(t, subject, authz.ToolID("own.whoami"))
	o.grants.allow(t, authz.UserID("user-2"), agent, authz.ToolID("own.whoami"))
	return x
}

// ask calls as the subject of a stand.
func (x *exchanging) ask(t *testing.T, as *rpctest.Stand) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := x.callAs(ctx, as.Envelope(), "own.whoami", `{}`)
	if err != nil {
		return "", err
	}
	return textOf(res, nil), nil
}

// nothingLeaked looks for whatever was secret in what was written down.
func (x *exchanging) nothingLeaked(t *testing.T) {
	t.Helper()
	_, _, secrets := x.endpoint.exchanges()
	raw, err := os.ReadFile(x.audit)
	must(t, err)
	for _, secret := range append(secrets, x.voucher.given()...) {
		if strings.Contains(x.log.String(), secret) || strings.Contains(string(raw), secret) {
			t.Errorf("%.40s… is in the log or the audit", secret)
		}
	}
}
