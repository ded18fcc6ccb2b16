package catalogue

import (
	"errors"
	"net/textproto"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/services/toolbroker/internal/credential"
	"cofferdam.dev/services/toolbroker/internal/egress"
)

// Sources of a credential.
const (
	// SourceFile is a secret that stands in a file.
	SourceFile = "file"
	// SourceCommand is what a program prints.
	SourceCommand = "command"
	// SourceClientCredentials is the OAuth 2.0 grant of this name.
	SourceClientCredentials = "oauth2_client_credentials" //nolint:gosec // a name
	// SourceTokenExchange is the grant of RFC 8693: each subject has a token of its own.
	SourceTokenExchange = "token_exchange"
)

// Credential says where a credential comes from and how the server gets it.
type Credential struct {
	// Source is "file", "command", "oauth2_client_credentials" or "token_exchange".
	Source string `json:"source"`
	// Path is, for file, that of the file.
	Path string `json:"path,omitempty"`
	// Command is, for command, the absolute path of a program and its arguments
	// (no secrets). It prints the token on one line, or an object with the fields
	// token and expires_at (RFC 3339). Its environment is empty.
	Command []string `json:"command,omitempty"`
	// TokenURL, ClientID and ClientSecretFile are for oauth2_client_credentials and
	// token_exchange; Scopes and Resource (RFC 8707) may be absent. For token_exchange
	// the capability service has to list TokenURL, word for word.
	TokenURL         string   `json:"token_url,omitempty"`
	ClientID         string   `json:"client_id,omitempty"`
	ClientSecretFile string   `json:"client_secret_file,omitempty"`
	Scopes           []string `json:"scopes,omitempty"`
	Resource         string   `json:"resource,omitempty"`
	// Audience is, for token_exchange, the name that the token endpoint has for the
	// server (RFC 8693, 2.1); it may be absent.
	Audience string `json:"audience,omitempty"`
	// Env is, for a server over stdio, the variable of its environment that holds
	// it. It is fetched at each start of the server and must not expire.
	Env string `json:"env,omitempty"`
	// Header is, for a server over HTTP, the header that holds it, by default
	// Authorization; Scheme stands before it there, by default "Bearer" in that
	// header and nothing in another.
	Header string `json:"header,omitempty"`
	Scheme string `json:"scheme,omitempty"`
}

// maxAudience bounds the names of a token's audience, in bytes.
const maxAudience = 512

var (
	headerPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	schemePattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{0,32}$`)
	scopePattern  = regexp.MustCompile(`^[!#-\[\]-~]{1,256}$`) // RFC 6749, 3.3
)

// reserved are headers that mean something else.
var reserved = []string{
	"Host", "Accept", "Accept-Encoding", "Connection", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Te", "Trailer",
	"Upgrade", "Last-Event-Id", "User-Agent", "Origin", "Proxy-Authorization",
}

func (c *Credential) validate(s Server, say say) {
	c.validateSource(say)
	switch s.Transport {
	case TransportStdio:
		if c.Header != "" || c.Scheme != "" {
			say("credential.header, credential.scheme: only for %q", TransportHTTP)
		}
		if _, twice := s.Environment[c.Env]; twice || !variablePattern.MatchString(c.Env) {
			say("credential.env: the name of a variable that environment does not set")
		}
		if c.Source == SourceClientCredentials || c.Source == SourceTokenExchange {
			say("credential.source: its tokens expire, and a server over stdio keeps the first one: use %q or %q", SourceFile, SourceCommand)
		}
	case TransportHTTP:
		if c.Env != "" {
			say("credential.env: only for %q", TransportStdio)
		}
		name := textproto.CanonicalMIMEHeaderKey(c.Header)
		if c.Header != "" && (!headerPattern.MatchString(c.Header) || slices.Contains(reserved, name) || strings.HasPrefix(name, "Mcp-")) {
			say("credential.header: the name of a header that is free")
		}
		if !schemePattern.MatchString(c.Scheme) {
			say("credential.scheme: a word such as Bearer")
		}
	}
}

func (c *Credential) validateSource(say say) {
	unused := func(source string, used bool) {
		if used && c.Source != source {
			say("credential: fields of the source %q", source)
		}
	}
	unused(SourceFile, c.Path != "")
	unused(SourceCommand, len(c.Command) > 0)
	unused(SourceTokenExchange, c.Audience != "")
	if c.Source != SourceTokenExchange {
		unused(SourceClientCredentials, c.TokenURL+c.ClientID+c.ClientSecretFile+c.Resource != "" || len(c.Scopes) > 0)
	}
	switch c.Source {
	case SourceFile:
		if !filepath.IsAbs(c.Path) {
			say("credential.path: an absolute path")
		}
	case SourceCommand:
		if len(c.Command) == 0 || !filepath.IsAbs(c.Command[0]) || slices.ContainsFunc(c.Command, hasNUL) {
			say("credential.command: begins with the absolute path of a program")
		}
	case SourceClientCredentials, SourceTokenExchange:
		if u, err := egress.ParseURL(c.TokenURL); err != nil || u.Scheme != "https" {
			say("credential.token_url: an https URL")
		}
		if c.ClientID == "" || len(c.ClientID) > 512 {
			say("credential.client_id: 1 to 512 bytes")
		}
		if !filepath.IsAbs(c.ClientSecretFile) {
			say("credential.client_secret_file: an absolute path")
		}
		if slices.ContainsFunc(c.Scopes, func(s string) bool { return !scopePattern.MatchString(s) }) {
			say("credential.scopes: each one scope")
		}
		if _, err := egress.ParseURL(c.Resource); c.Resource != "" && err != nil {
			say("credential.resource: %w", err)
		}
		if len(c.Audience) > maxAudience || len(c.TokenURL) > maxAudience {
			say("credential.token_url, credential.audience: at most %d bytes", maxAudience)
		}
	default:
		say("credential.source: %q, %q, %q or %q", SourceFile, SourceCommand, SourceClientCredentials, SourceTokenExchange)
	}
}

// source fetches it. Connections to a token endpoint go where those to the server
// may go.
func (c *Credential) source(e *Egress) (credential.Source, error) {
	switch c.Source {
	case SourceFile:
		return credential.File{Path: c.Path}, nil
	case SourceCommand:
		return credential.Command{Args: c.Command}, nil
	case SourceClientCredentials:
		p, err := e.policy(c.TokenURL)
		if err != nil {
			return nil, err
		}
		return &credential.ClientCredentials{
			Client: egress.New(p, nil).Direct(), TokenURL: c.TokenURL, ClientID: c.ClientID, SecretFile: c.ClientSecretFile,
			Scopes: c.Scopes, Resource: c.Resource, Now: time.Now,
		}, nil
	case SourceTokenExchange:
		p, err := e.policy(c.TokenURL)
		if err != nil {
			return nil, err
		}
		return &credential.TokenExchange{
			Client: egress.New(p, nil).Direct(), TokenURL: c.TokenURL, ClientID: c.ClientID, SecretFile: c.ClientSecretFile,
			Scopes: c.Scopes, Resource: c.Resource, Audience: c.Audience, Now: time.Now,
		}, nil
	default:
		return nil, errors.New("credential: unknown source")
	}
}

// header gives the name of the header and what stands before the token in it.
func (c *Credential) header() (name, before string) {
	name, before = c.Header, c.Scheme
	if name == "" || strings.EqualFold(name, "Authorization") {
		name = "Authorization"
		if before == "" {
			before = "Bearer"
		}
	}
	if before != "" {
		before += " "
	}
	return name, before
}

// Secrets are the files that hold secrets of servers.
func (c Config) Secrets() []string {
	var paths []string
	for _, s := range c.Servers {
		for _, cred := range []*Credential{s.Credential, s.ListingCredential} {
			if cred != nil {
				paths = append(paths, cred.Path, cred.ClientSecretFile)
			}
		}
	}
	return paths
}
