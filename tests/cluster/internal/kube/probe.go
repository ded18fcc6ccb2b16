package kube

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// ErrProbe wraps what a probe says it could not do.
var ErrProbe = errors.New("probe")

// Probe asks the probe in a pod (see the command probe) to do something, and
// decodes what it answers into value unless that is nil. What the probe could not do
// is an ErrProbe; not to reach the probe is the end of the test.
func Probe(ctx context.Context, t testing.TB, address, path string, query url.Values, value any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+":8080"+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Value json.RawMessage
		Error string
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Error != "" {
		return errors.Join(ErrProbe, errors.New(answer.Error))
	}
	if value != nil {
		if err := json.Unmarshal(answer.Value, value); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// Dial asks the probe at an address whether somebody answers at target from there.
func Dial(ctx context.Context, t testing.TB, address, network, target string) error {
	t.Helper()
	return Probe(ctx, t, address, "/dial", url.Values{"network": {network}, "address": {target}}, nil)
}
