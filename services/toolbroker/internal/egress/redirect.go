package egress

import (
	"errors"
	"net/http"
)

// maxRedirects is how many redirects are followed.
const maxRedirects = 5

// ErrRedirect says that a redirect is not followed.
var ErrRedirect = errors.New("egress: a redirect that is not followed")

// Client follows redirects of GET within one origin, and sends nothing with them
// that the caller put into the headers of the first request but what it accepts.
func (t *Transport) Client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || req.Method != http.MethodGet || origin(req.URL) != origin(via[0].URL) || req.URL.User != nil {
			return ErrRedirect
		}
		kept := http.Header{}
		for _, name := range []string{"Accept", "User-Agent"} {
			if v := req.Header.Get(name); v != "" {
				kept.Set(name, v)
			}
		}
		req.Header = kept //nolint:gosec // two headers, to the same origin
		return nil
	}}
}

// Direct follows no redirect: it is for requests that may be sent once, and for
// those with a credential.
func (t *Transport) Direct() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
