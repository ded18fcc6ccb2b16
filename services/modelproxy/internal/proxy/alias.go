package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
)

// Kind is where the calls of an alias go.
type Kind string

// The kinds of aliases.
const (
	// KindOpenAI is an endpoint on the OpenAI Chat Completions wire.
	KindOpenAI Kind = "openai"
	// KindDemo is the built-in demo model, on the same wire.
	KindDemo Kind = "demo"
)

// Alias is one model endpoint under the name that capabilities use.
type Alias struct {
	// Kind; empty is KindOpenAI.
	Kind Kind `json:"kind,omitempty"`
	// BaseURL is what "/chat/completions" is added to, such as
	// "https://api.example.com/v1". http is taken for a loopback address only.
	BaseURL string `json:"base_url,omitempty"`
	// KeyFile holds the endpoint's API key, at most 16 KiB of printable ASCII. It
	// is read for each call, so a new key takes effect at once. Empty where the
	// endpoint takes none.
	KeyFile string `json:"key_file,omitempty"`
	// CAFile is a PEM bundle that takes the place of the system's roots; empty
	// uses those.
	CAFile string `json:"ca_file,omitempty"`
	// Model is the endpoint's name of the model; empty sends the alias itself.
	Model string `json:"model,omitempty"`
	// Fields are further fields of a request's body that may be passed on, beside
	// the harmless ones of the wire. What such a field makes the endpoint do is
	// out of this system's sight.
	Fields []string `json:"fields,omitempty"`
}

type aliasKey struct{}

// WithAlias puts the alias that the caller's capability names into ctx.
func WithAlias(ctx context.Context, alias string) context.Context {
	return context.WithValue(ctx, aliasKey{}, alias)
}

func aliasFrom(ctx context.Context) (string, bool) {
	alias, ok := ctx.Value(aliasKey{}).(string)
	return alias, ok && alias != ""
}

// endpoint checks BaseURL and gives the address of the route. The error does
// not repeat the URL, which may hold what it should not.
func (a Alias) endpoint() (u *url.URL, loopback bool, err error) {
	u, err = url.Parse(a.BaseURL)
	if err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" {
		return nil, false, errors.New("base_url must be an absolute URL such as https://api.example.com/v1")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, false, errors.New("base_url must have no user, query or fragment: keys belong into key_file")
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && isLoopback(u.Hostname()):
		loopback = true
	case u.Scheme == "http":
		return nil, false, errors.New("base_url must begin with https:// unless its host is a loopback address")
	default:
		return nil, false, errors.New("base_url must begin with https://")
	}
	return u.JoinPath("chat/completions"), loopback, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true // what it resolves to is checked when it is dialled
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// validateDemo refuses settings that the demo model would leave without effect.
func (a Alias) validateDemo() error {
	if a.BaseURL != "" || a.KeyFile != "" || a.CAFile != "" || a.Model != "" || len(a.Fields) > 0 {
		return fmt.Errorf("kind %q takes no other settings", KindDemo)
	}
	return nil
}
