package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	probeTimeout = 5 * time.Second
	probeAgain   = 25 * time.Millisecond
)

// prober asks whether something answers. It keeps no connection.
type prober struct{ client *http.Client }

func newProber() prober {
	return prober{&http.Client{
		Timeout:       probeTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true}, // no proxy from the environment
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// waitReady returns once a route answers with a status of the class 2xx. A service
// that does not accept yet lets the request wait, so this is not later than it.
func (p prober) waitReady(ctx context.Context, url string) error {
	return p.wait(ctx, url, func(status int) bool { return status/100 == 2 })
}

// waitAnswer returns once anything of a service answers: that it wants a token is
// answer enough.
func (p prober) waitAnswer(ctx context.Context, url string) error {
	return p.wait(ctx, url, func(status int) bool { return status < http.StatusInternalServerError })
}

func (p prober) wait(ctx context.Context, url string, good func(status int) bool) error {
	var last error
	for {
		status, err := p.status(ctx, url)
		if err == nil && good(status) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("status %d", status)
		}
		if !errors.Is(err, context.DeadlineExceeded) || last == nil {
			last = err // what was wrong before says more than that time is up
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", ctx.Err(), last)
		case <-time.After(probeAgain):
		}
	}
}

func (p prober) status(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
