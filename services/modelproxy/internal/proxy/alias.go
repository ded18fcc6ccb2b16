package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
)

// Kind is where the calls of an alias go.
type Kind string

// The kinds of aliases.
const (
	// KindOpenAI is an endpoint on the wire of OpenAI Chat Completions, unless
	// Wires say more.
	KindOpenAI Kind = "openai"
	// KindAnthropic is an endpoint on the wire of Anthropic Messages.
	KindAnthropic Kind = "anthropic"
	// KindGemini is an endpoint on the wire of Gemini.
	KindGemini Kind = "gemini"
	// KindDemo is the built-in demo model, on every wire.
	KindDemo Kind = "demo"
)

// Alias is one model endpoint under the name that capabilities use.
type Alias struct {
	// Kind; empty is KindOpenAI.
	Kind Kind `json:"kind,omitempty"`
	// Wires that the endpoint speaks; empty is the one of the kind. A request on
	// another wire is not_found. Services have embeddings made by the aliases that
	// list openai_embeddings, and by no others.
	Wires []Wire `json:"wires,omitempty"`
	// BaseURL is what the route is added to, its version included, such as
	// "https://api.example.com/v1" ("/chat/completions", "/responses",
	// "/messages") or "https://api.example.com/v1beta" ("/models/…"). http is
	// taken for a loopback address only.
	BaseURL string `json:"base_url,omitempty"`
	// KeyFile holds the endpoint's API key, at most 16 KiB of printable ASCII. It
	// is read for each call, so a new key takes effect at once. Empty where the
	// endpoint takes none. The wire says how the key is sent.
	KeyFile string `json:"key_file,omitempty"`
	// CAFile is a PEM bundle that takes the place of the system's roots; empty
	// uses those.
	CAFile string `json:"ca_file,omitempty"`
	// Model is the endpoint's name of the model; empty sends the alias itself.
	Model string `json:"model,omitempty"`
	// SideModel is the endpoint's name of the model that answers requests for
	// other names than the alias, Model and Names: agents have titles and
	// summaries made by a smaller model of their choice. Empty is Model.
	SideModel string `json:"side_model,omitempty"`
	// Names are further names under which the model itself is asked for: some
	// agents do not take the one that they are told.
	Names []string `json:"names,omitempty"`
	// Fields are further fields of a request's body that may be passed on, beside
	// the harmless ones of the wire. What such a field makes the endpoint do is
	// out of this system's sight.
	Fields []string `json:"fields,omitempty"`
	// DropUnknown takes fields that are not passed on, and tools that the endpoint
	// would run by itself, out of a request instead of refusing it: agents send
	// both unasked. Content that names something elsewhere is refused all the
	// same.
	DropUnknown bool `json:"drop_unknown,omitempty"`
	// NoRetry answers an endpoint's failure with 400, whatever it was, except for
	// a rate limit: agents repeat a call that failed with 5xx for up to a minute
	// and more, whatever they are told. The code in the body stays.
	NoRetry bool `json:"no_retry,omitempty"`
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

// speaks lists the wires of the alias.
func (a Alias) speaks() ([]Wire, error) {
	for _, w := range a.Wires {
		if !slices.Contains(wires(), w) {
			return nil, fmt.Errorf("wires must be among %q", wires())
		}
	}
	switch {
	case len(a.Wires) > 0:
		return a.Wires, nil
	case a.Kind == KindAnthropic:
		return []Wire{AnthropicMessages}, nil
	case a.Kind == KindGemini:
		return []Wire{Gemini}, nil
	default:
		return []Wire{OpenAIChat}, nil
	}
}

// base checks BaseURL. The error does not repeat the URL, which may hold what it
// should not.
func (a Alias) base() (u *url.URL, loopback bool, err error) {
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
	return u, loopback, nil
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
	if a.BaseURL != "" || a.KeyFile != "" || a.CAFile != "" || a.Model != "" || a.SideModel != "" || len(a.Wires)+len(a.Fields) > 0 || a.DropUnknown {
		return fmt.Errorf("kind %q takes no other settings but names and no_retry", KindDemo)
	}
	return nil
}
