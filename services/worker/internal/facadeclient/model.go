package facadeclient

import (
	"errors"
	"net/http"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/rpc"
)

// modelTransport adds the run's authority to the requests of a model client.
type modelTransport struct {
	next            http.RoundTripper
	token, envelope string
}

// RoundTrip sends what the model's wire needs and the run's authority. What else
// a client library says about itself and its machine stays here.
func (t modelTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token == "" {
		var err error
		if r.Body != nil {
			err = r.Body.Close()
		}
		return nil, errors.Join(fault.New(fault.CapabilityMissing, "facadeclient.model",
			fault.Detail("no capability for "+string(capability.ModelProxy))), err)
	}
	out := r.Clone(r.Context())
	out.Header = make(http.Header)
	for _, name := range []string{"Accept", "Content-Type"} {
		if v := r.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	out.Header.Set("Authorization", "Bearer "+t.token)
	out.Header.Set(rpc.EnvelopeHeader, t.envelope)
	return t.next.RoundTrip(out)
}
