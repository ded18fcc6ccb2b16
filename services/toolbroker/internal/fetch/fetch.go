// Package fetch has the built-in tool http_fetch: it gets text from a host that
// the operator allows, and does nothing else.
package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// Tool is the name of the tool.
const Tool = "http_fetch"

// maxText bounds what is read of a response, in bytes. What of it may be shown is
// bounded elsewhere.
const maxText = 1 << 20

// definition is what a server would say of the tool.
const definition = `{"name":"` + Tool + `",` +
	`"description":"Gets a text document (HTML, JSON, XML, plain text) by HTTP GET from one of the hosts that the operator allows.",` +
	`"inputSchema":{"type":"object","properties":{"url":{"type":"string","maxLength":8192,"description":"An absolute https URL."}},"required":["url"],"additionalProperties":false}}`

// Fetcher is the tool in the place of a server.
type Fetcher struct {
	transport *egress.Transport
	client    *http.Client

	once sync.Once
	done chan struct{}
}

// New makes a Fetcher, whose policy names the hosts.
func New(p egress.Policy) *Fetcher {
	t := egress.New(p, nil)
	return &Fetcher{transport: t, client: t.Client(), done: make(chan struct{})}
}

// Tools gives the one tool.
func (*Fetcher) Tools(context.Context) (mcpcall.List, error) {
	return mcpcall.List{Tools: []json.RawMessage{json.RawMessage(definition)}, TTL: 24 * time.Hour}, nil
}

// Changed is never told anything.
func (*Fetcher) Changed() <-chan struct{} { return nil }

// Done is closed by Close.
func (f *Fetcher) Done() <-chan struct{} { return f.done }

// Version is that of no protocol.
func (*Fetcher) Version() string { return "builtin" }

// Close closes idle connections.
func (f *Fetcher) Close() error {
	f.once.Do(func() { close(f.done) })
	f.transport.CloseIdleConnections()
	return nil
}

// Call implements what mcpcall.Peer promises. A GET has no effect, so that what
// went wrong is the answer.
func (f *Fetcher) Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time, _ ...mcpcall.Option) (mcpcall.Answer, error) {
	if err := ctx.Err(); err != nil {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNotSent, err)
	}
	if !by.IsZero() && !time.Now().Before(by) {
		return mcpcall.Answer{}, fmt.Errorf("%w: it was too late", mcpcall.ErrNotSent)
	}
	if tool != Tool {
		return mcpcall.Answer{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown tool"}}, nil
	}
	var args struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(arguments, &args) != nil {
		return mcpcall.Answer{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "url: a text"}}, nil //nolint:nilerr // it is the answer
	}
	text, ok := f.get(ctx, args.URL)
	if err := ctx.Err(); err != nil {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNoAnswer, err)
	}
	result, err := json.Marshal(map[string]any{"content": []map[string]string{{"type": "text", "text": text}}, "isError": !ok})
	if err != nil {
		return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNoAnswer, err)
	}
	return mcpcall.Answer{Result: result}, nil
}

// get gives the text, or what a model may know of why there is none: not which
// address a name has.
func (f *Fetcher) get(ctx context.Context, address string) (text string, ok bool) {
	u, err := egress.ParseURL(address)
	if err != nil {
		return err.Error(), false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "The URL cannot be asked for.", false
	}
	req.Header.Set("Accept", "text/*, application/json, application/xml;q=0.9")
	req.Header.Set("User-Agent", mcpcall.ClientName+"/"+mcpcall.ClientVersion)
	res, err := f.client.Do(req)
	if err != nil {
		return why(err), false
	}
	defer res.Body.Close()
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || !isText(kind) {
		return fmt.Sprintf("HTTP %d, and the document is no text.", res.StatusCode), false
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxText))
	if err != nil {
		return "The document broke off.", false
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Sprintf("HTTP %d\n\n%s", res.StatusCode, raw), false
	}
	return string(raw), true
}

func why(err error) string {
	if wrong, ok := errors.AsType[*egress.URLError](err); ok {
		return "The URL is not allowed: " + wrong.Reason + "."
	}
	if _, ok := errors.AsType[*egress.AddressError](err); ok || errors.Is(err, egress.ErrPlain) {
		return "The host is at an address that is not allowed."
	}
	if errors.Is(err, egress.ErrRedirect) {
		return "The document has moved to a place that is not followed."
	}
	return "The host did not answer."
}

func isText(kind string) bool {
	switch {
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "+json"), strings.HasSuffix(kind, "+xml"):
		return true
	default:
		return kind == "application/json" || kind == "application/xml" || kind == "application/yaml"
	}
}
