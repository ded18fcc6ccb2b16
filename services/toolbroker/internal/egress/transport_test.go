package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// names is a resolver whose answers may change from one question to the next.
type names struct {
	asked   atomic.Int32
	answers [][]netip.Addr
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	i := int(n.asked.Add(1)) - 1
	return n.answers[min(i, len(n.answers)-1)], nil
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func portOf(t *testing.T, u string) uint16 {
	t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(parsed.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}

func get(t *testing.T, rt http.RoundTripper, u string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	return string(body), errors.Join(err, res.Body.Close())
}

func serve(t *testing.T, secure bool, h http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var hits atomic.Int32
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1); h(w, r) })
	s := httptest.NewUnstartedServer(counted)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, &hits
}

func transport(t *testing.T, p Policy, r Resolver) *Transport {
	t.Helper()
	tr := New(p, r)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

// The address that was checked is the one that is connected to: a name that
// answers differently the second time (rebinding) gains nothing.
func TestANameIsResolvedOnce(t *testing.T) {
	t.Parallel()
	s, hits := serve(t, false, ok)
	port := portOf(t, s.URL)
	p := Policy{Allow: prefixes(t, "127.0.0.1/32"), Ports: []uint16{port}}
	u := "http://rebind.example:" + strconv.Itoa(int(port))

	rebinding := &names{answers: [][]netip.Addr{addrs("127.0.0.1"), addrs("127.0.0.2")}}
	if body, err := get(t, transport(t, p, rebinding), u); err != nil || body != "ok" || rebinding.asked.Load() != 1 {
		t.Errorf("%q %v, asked %d times", body, err, rebinding.asked.Load())
	}
	// The other way round: refused at the first answer, whatever comes later.
	rebinding = &names{answers: [][]netip.Addr{addrs("127.0.0.2"), addrs("127.0.0.1")}}
	var wrong *AddressError
	if _, err := get(t, transport(t, p, rebinding), u); !errors.As(err, &wrong) || rebinding.asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, rebinding.asked.Load())
	}
	for _, mixed := range [][]netip.Addr{addrs("127.0.0.1", "10.0.0.1"), addrs("8.8.8.8", "127.0.0.3"), addrs("127.0.0.1", "::ffff:169.254.169.254"), nil} {
		if _, err := get(t, transport(t, p, &names{answers: [][]netip.Addr{mixed}}), u); err == nil {
			t.Errorf("%v: connected", mixed)
		}
	}
	if hits.Load() != 1 {
		t.Errorf("%d requests arrived", hits.Load())
	}
}

func TestWhatIsNotConnectedTo(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	s, hits := serve(t, false, ok)
	port := portOf(t, s.URL)
	for name, c := range map[string]struct {
		p   Policy
		url string
		ok  bool
	}{
		"allowed":             {Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{port}}, s.URL, true},
		"not allowed":         {Policy{Ports: []uint16{port}}, s.URL, false},
		"another range":       {Policy{Allow: prefixes(t, "10.0.0.0/8"), Ports: []uint16{port}}, s.URL, false},
		"another port":        {Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{port + 1}}, s.URL, false},
		"the port of default": {Policy{Allow: prefixes(t, "127.0.0.0/8")}, s.URL, false},
		"another host":        {Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{port}, Hosts: []string{"other.example"}}, s.URL, false},
		"by its name":         {Policy{Ports: []uint16{port}}, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), false},
		"in IPv6":             {Policy{Ports: []uint16{port}}, strings.Replace(s.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1), false},
		"another scheme":      {Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{port}}, "ftp" + s.URL[4:], false},
	} {
		before := hits.Load()
		body, err := get(t, transport(t, c.p, nil), c.url)
		if (err == nil) != c.ok || c.ok != (hits.Load() == before+1) {
			t.Errorf("%s: %q %v, %d arrived", name, body, err, hits.Load()-before)
		}
	}
}

// Without TLS nothing goes to a public address.
func TestNoPlainHTTPToThePublic(t *testing.T) {
	t.Parallel()
	public := &names{answers: [][]netip.Addr{addrs("8.8.8.8")}}
	if _, err := get(t, transport(t, Policy{Ports: []uint16{80}}, public), "http://a.example"); !errors.Is(err, ErrPlain) {
		t.Error(err)
	}
}

func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	s, hits := serve(t, true, ok)
	port := portOf(t, s.URL)
	p := Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{port}}
	if _, err := get(t, transport(t, p, nil), s.URL); err == nil {
		t.Error("an unknown authority is believed")
	}
	p.Roots = x509.NewCertPool()
	p.Roots.AddCert(s.Certificate())
	if body, err := get(t, transport(t, p, nil), s.URL); err != nil || body != "ok" {
		t.Error(body, err)
	}
	wrongName := &names{answers: [][]netip.Addr{addrs("127.0.0.1")}}
	if _, err := get(t, transport(t, p, wrongName), "https://wrong.name:"+strconv.Itoa(int(port))); err == nil {
		t.Error("a certificate of another name is believed")
	}
	if hits.Load() != 1 {
		t.Errorf("%d requests arrived", hits.Load())
	}
}

func TestResponsesAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/headers":
			w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
		case "/said":
			w.Header().Set("Content-Length", strconv.Itoa(100<<20))
		case "/unsaid":
			chunk := make([]byte, 1<<20)
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
	})
	tr := transport(t, Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{portOf(t, s.URL)}}, nil)
	if _, err := get(t, tr, s.URL+"/headers"); err == nil {
		t.Error("a megabyte of headers is read")
	}
	for _, path := range []string{"/said", "/unsaid"} {
		if body, err := get(t, tr, s.URL+path); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %d bytes, %v", path, len(body), err)
		}
	}
}

// A redirect leads nowhere else, and carries no credential.
func TestRedirects(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 10)
	other, otherHits := serve(t, false, ok)
	s, _ := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch to := r.URL.Query().Get("to"); {
		case to != "":
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			seen <- r.Header
			ok(w, r)
		}
	})
	tr := transport(t, Policy{Allow: prefixes(t, "127.0.0.0/8"), Ports: []uint16{portOf(t, s.URL), portOf(t, other.URL)}}, nil)
	do := func(c *http.Client, to string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/?to="+url.QueryEscape(to), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		req.Header.Set("X-Api-Key", "secret")
		req.Header.Set("Accept", "text/plain")
		res, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	if code, err := do(tr.Client(), "/here"); code != 200 || err != nil {
		t.Errorf("within the origin: %d %v", code, err)
	}
	if h := <-seen; h.Get("Authorization") != "" || h.Get("X-Api-Key") != "" || h.Get("Accept") != "text/plain" {
		t.Errorf("it carries %v", h)
	}
	for _, to := range []string{other.URL, "http://169.254.169.254/latest/meta-data/", "https" + s.URL[4:], "//localhost/"} {
		if _, err := do(tr.Client(), to); err == nil {
			t.Errorf("%s: followed", to)
		}
	}
	if code, err := do(tr.Direct(), "/here"); code != http.StatusTemporaryRedirect || err != nil {
		t.Errorf("direct: %d %v", code, err)
	}
	if otherHits.Load() != 0 || len(seen) != 0 {
		t.Error("a redirect was followed that must not be")
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "x", "ftp://a", "file:///etc/passwd", "https://", "https:a", "https://u:p@a/", "https://u@a/", "https://a/#f", "https://a\n/", "https://é/",
		"https://[fe80::1%25eth0]/", "//a/", "https://" + strings.Repeat("a", 9000),
	} {
		if u, err := ParseURL(s); err == nil {
			t.Errorf("%q is %v", s, u)
		}
	}
	for s, port := range map[string]string{"https://a/b?c": "443", "http://a": "80", "https://a:8443/": "8443", "https://[2606::1]/": "443"} {
		if u, err := ParseURL(s); err != nil || Port(u) != port {
			t.Errorf("%s: %v", s, err)
		}
	}
}
