// Package apiclient calls the public API of the control plane: it starts runs,
// follows their events, and asks the operators' API for bindings.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cofferdam.dev/pkg/fault"
)

const (
	// callTimeout bounds a call that is not a stream.
	callTimeout = 60 * time.Second
	// maxAnswer bounds the body of such a call, in bytes.
	maxAnswer     = 16 << 20
	dialTimeout   = 5 * time.Second
	headerTimeout = 60 * time.Second
)

// TokenSource gives a bearer token for each call.
type TokenSource func() (string, error)

// Client calls one API. It is safe for concurrent use.
type Client struct {
	base  string
	token TokenSource
	http  *http.Client
	// pause is the first one after a stream that broke.
	pause time.Duration
}

// New makes a client of the API at a base URL, http://host:port. It follows no
// redirect and uses no proxy: the token goes there and nowhere else.
func New(baseURL string, token TokenSource) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("apiclient: a base URL is http://host:port")
	}
	return &Client{
		base: strings.TrimSuffix(baseURL, "/"), token: token, pause: firstPause,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
				ResponseHeaderTimeout: headerTimeout,
				MaxIdleConnsPerHost:   4,
				IdleConnTimeout:       time.Minute,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// open sends a request and gives the answer if its status is of the class 2xx. An
// error of the API is a *fault.Error.
func (c *Client) open(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	return nil, errors.Join(refusal(res), res.Body.Close())
}

// refusal reads what an answer says that is none of the class 2xx.
func refusal(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("apiclient: status %d: %w", res.StatusCode, err)
	}
	if e, ok := fault.ReadHTTP(body); ok {
		return e
	}
	return fmt.Errorf("apiclient: status %d, and no error of this API", res.StatusCode)
}

// call sends one JSON value and reads another. in and out may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	res, err := c.open(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(raw) > maxAnswer:
		return fmt.Errorf("apiclient: the answer is larger than %d bytes", maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("apiclient: the answer is not what this client knows: %w", err)
	}
	return nil
}
