package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

const (
	// patience is how long a call other than Claim waits for a host that is away: it
	// is started again by whoever watches over it.
	patience = 10 * time.Second
	// firstPause, doubled up to maxPause, is between two attempts.
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// Client is the provider behind a Host. Close ends it, and no sandbox.
type Client struct {
	client   *http.Client
	baseURL  string
	logger   *slog.Logger
	info     info
	profiles *harnesses.Catalogue
	exits    chan sandbox.Exit
	close    func() error
}

var _ sandbox.Provider = (*Client)(nil)

// Dial makes a Client once its host has answered, which it waits for until ctx
// ends. The HTTP client accepts only the host's identity.
func Dial(ctx context.Context, client *http.Client, baseURL string, logger *slog.Logger) (*Client, error) {
	c := &Client{client: client, baseURL: baseURL, logger: logger, exits: make(chan sandbox.Exit, exitsBuffer)}
	if err := c.call(ctx, "host.Info", http.MethodGet, infoPath, nil, &c.info); err != nil {
		return nil, err
	}
	var err error
	if c.profiles, err = c.info.catalogue(); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "host.Info")
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { c.follow(life) })
	c.close = sync.OnceValue(func() error {
		end()
		wg.Wait()
		close(c.exits)
		client.CloseIdleConnections()
		return nil
	})
	return c, nil
}

// Claim implements sandbox.Provider. While the host is away it waits until ctx
// ends: the same claim made again is the same claim.
func (c *Client) Claim(ctx context.Context, want sandbox.Claim) (sandbox.Instance, error) {
	const op = "host.Claim"
	body, err := json.Marshal(claim{want.Name, want.Profile, want.Harness})
	if err != nil {
		return sandbox.Instance{}, fault.Wrap(err, fault.Internal, op)
	}
	var in instance
	if err := c.call(ctx, op, http.MethodPost, claimsPath, body, &in); err != nil {
		return sandbox.Instance{}, err
	}
	out, err := in.sandbox()
	if err != nil {
		return out, fault.Wrap(err, fault.Internal, op)
	}
	return out, nil
}

// Room implements sandbox.Provider. A host that is away says nothing: whoever claims
// waits for it.
func (c *Client) Room(ctx context.Context, want sandbox.Claim) error {
	const op = "host.Room"
	body, err := json.Marshal(claim{want.Name, want.Profile, want.Harness})
	if err != nil {
		return fault.Wrap(err, fault.Internal, op)
	}
	var none struct{}
	if err := c.once(ctx, op, http.MethodPost, roomPath, body, &none); fault.Is(err, fault.SandboxCapacity) {
		return err
	}
	return nil
}

// Release implements sandbox.Provider.
func (c *Client) Release(ctx context.Context, claimName string) error {
	var none struct{}
	return c.soon(ctx, "host.Release", http.MethodDelete, claimsPath+"/"+url.PathEscape(claimName), &none)
}

// Alive implements sandbox.Provider.
func (c *Client) Alive(ctx context.Context, claimName, uid string) (bool, error) {
	var out alive
	err := c.soon(ctx, "host.Alive", http.MethodGet, claimsPath+"/"+url.PathEscape(claimName)+"/instances/"+url.PathEscape(uid), &out)
	return out.Alive, err
}

// List implements sandbox.Provider.
func (c *Client) List(ctx context.Context) ([]sandbox.Instance, error) {
	var all instances
	if err := c.soon(ctx, "host.List", http.MethodGet, instancesPath, &all); err != nil {
		return nil, err
	}
	out := make([]sandbox.Instance, len(all.Instances))
	for i, in := range all.Instances {
		var err error
		if out[i], err = in.sandbox(); err != nil {
			return nil, fault.Wrap(err, fault.Internal, "host.List")
		}
	}
	return out, nil
}

// Exits implements sandbox.Provider.
func (c *Client) Exits() <-chan sandbox.Exit { return c.exits }

// Weaknesses implements sandbox.Provider.
func (c *Client) Weaknesses() []string { return slices.Clone(c.info.Weaknesses) }

// Describe gives what each profile runs.
func (c *Client) Describe(context.Context) *harnesses.Catalogue { return c.profiles }

// Address is where a sandbox finds a service.
func (c *Client) Address(service string) string { return c.info.Addresses[service] }

// Close implements sandbox.Provider, but for the instances: they are the host's.
func (c *Client) Close() error { return c.close() }

// soon is call that does not wait for long where the host is away. A release that
// is answered takes the time of ctx.
func (c *Client) soon(ctx context.Context, op, method, path string, out any) error {
	for until := time.Now().Add(patience); ; {
		err := c.once(ctx, op, method, path, nil, out)
		if !fault.Is(err, fault.DependencyUnavailable) || !time.Now().Before(until) {
			return err
		}
		if !pause(ctx, 5*firstPause) {
			return err
		}
	}
}

// call repeats a request that was not answered until ctx ends.
func (c *Client) call(ctx context.Context, op, method, path string, body []byte, out any) error {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		err := c.once(ctx, op, method, path, body, out)
		if !fault.Is(err, fault.DependencyUnavailable) || !pause(ctx, wait) {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c *Client) once(ctx context.Context, op, method, path string, body []byte, out any) error {
	res, err := c.send(ctx, method, path, body)
	if err != nil {
		return lost(ctx, err, op)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return lost(ctx, err, op)
	case len(raw) > maxAnswer:
		return fault.Wrap(fmt.Errorf("an answer of more than %d bytes", maxAnswer), fault.Internal, op)
	case res.StatusCode == http.StatusOK:
		if err := json.Unmarshal(raw, out); err != nil {
			return fault.Wrap(err, fault.Internal, op)
		}
		return nil
	}
	if f, ok := fault.ReadHTTP(raw); ok {
		return f
	}
	return fault.Wrap(fmt.Errorf("status %d", res.StatusCode), fault.DependencyUnavailable, op)
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, bytes.NewReader(body)) //nolint:gosec // the operator names the host
	if err != nil {
		return nil, err
	}
	return c.client.Do(req) //nolint:gosec // as above, and the client accepts one identity
}

// lost is a request without an answer: the caller's time is over, or the host is
// away.
func lost(ctx context.Context, err error, op string) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err(), op)
	}
	return fault.Wrap(err, fault.DependencyUnavailable, op)
}

// follow passes exits on until ctx ends, and connects again whenever the stream
// ends.
func (c *Client) follow(ctx context.Context) {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		listened, err := c.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if listened {
			wait = firstPause
		}
		c.logger.WarnContext(ctx, "exits of sandboxes are not told now", "error", err.Error())
		if !pause(ctx, wait) {
			return
		}
	}
}

// listen passes exits on for as long as one stream lasts, and reports whether it
// stood.
func (c *Client) listen(ctx context.Context) (listened bool, err error) {
	res, err := c.send(ctx, http.MethodGet, exitsPath, nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("status %d", res.StatusCode)
	}
	for lines := json.NewDecoder(res.Body); ; listened = true {
		var e exit
		if err := lines.Decode(&e); err != nil {
			return listened, err
		}
		if e.UID == "" {
			continue
		}
		select {
		case c.exits <- sandbox.Exit{ClaimName: e.ClaimName, UID: e.UID, Limit: e.Limit}:
		default: // who reads too slowly finds out by Alive
		}
	}
}
