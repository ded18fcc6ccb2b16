package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

const (
	// maxBody bounds an answer, in bytes.
	maxBody = 16 << 20
	// maxToken bounds a token file, in bytes.
	maxToken = 16 << 10
)

// Client calls one API as one caller. It can be used from any goroutine.
type Client struct {
	base, header string
	http         *http.Client
}

// New makes a client of the API at base, a URL, with the header line that
// `cofferdam token --out` wrote into tokenFile. An empty tokenFile calls as
// nobody. Close must be called.
func New(base, tokenFile string) (*Client, error) {
	c := &Client{base: strings.TrimSuffix(base, "/"), http: &http.Client{
		Transport:     &http.Transport{}, // no proxy, and a pool of its own
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if tokenFile == "" {
		return c, nil
	}
	raw, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	line := strings.TrimSuffix(string(raw), "\n")
	value, ok := strings.CutPrefix(line, "Authorization: ")
	if !ok || len(raw) > maxToken || strings.ContainsAny(value, "\r\n") {
		return nil, fmt.Errorf("%s does not hold one header line", tokenFile)
	}
	c.header = value
	return c, nil
}

// Authorization is the value of the header that the client sends.
func (c *Client) Authorization() string { return c.header }

// Base is the URL of the API, without a slash at its end.
func (c *Client) Base() string { return c.base }

// Close ends connections that wait for another request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an answer of the API that refuses something.
type Error struct {
	Status     int    `json:"-"`
	Code       string `json:"code"`
	Category   string `json:"category"`
	Message    string `json:"message"`
	Retryable  bool   `json:"retryable"`
	RetryAfter int    `json:"retry_after_seconds,omitempty"`
	IncidentID string `json:"incident_id"`
	Detail     string `json:"detail,omitempty"`
	// SideEffects is none, possible or known where the request had effects.
	SideEffects string `json:"side_effect_status,omitempty"`
}

// Error names status, code and what was wrong.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s (%s; incident %s)", e.Status, e.Code, e.Message, e.Detail, e.IncidentID)
}

// CodeOf is the code of an *Error, or "" for any other error and nil.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Err is the error that the answer states, or nil for a status of the class 2xx.
// An answer that is neither is itself an error.
func (a Answer) Err() error {
	if a.Status/100 == 2 {
		return nil
	}
	var doc struct {
		Error *Error `json:"error"`
	}
	if err := strict(a.Body, &doc); err != nil || doc.Error == nil || doc.Error.Code == "" {
		return fmt.Errorf("status %d with a body that is no error of the API: %.200q", a.Status, a.Body)
	}
	doc.Error.Status = a.Status
	return doc.Error
}

// Do sends any request and reads the whole answer. A nil body sends none.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body io.Reader) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return Answer{}, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := c.send(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return Answer{}, err
	}
	if len(raw) > maxBody {
		return Answer{}, fmt.Errorf("%s %s: an answer of more than %d bytes", method, path, maxBody)
	}
	return Answer{Status: res.StatusCode, Header: res.Header, Body: raw}, nil
}

func (c *Client) send(req *http.Request) (*http.Response, error) {
	if c.header != "" {
		req.Header.Set("Authorization", c.header)
	}
	return c.http.Do(req)
}

// call sends in as JSON, if it is not nil, and decodes the answer into out. A
// field that this client does not know is an error: the API documents all.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	contentType := ""
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, contentType = bytes.NewReader(raw), "application/json"
	}
	a, err := c.Do(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	if err := a.Err(); err != nil {
		return err
	}
	if t := a.Header.Get("Content-Type"); t != "application/json" {
		return fmt.Errorf("%s %s: Content-Type %q", method, path, t)
	}
	if err := strict(a.Body, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// strict decodes one JSON value whose fields are all known.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("data after the value")
	}
	return nil
}
