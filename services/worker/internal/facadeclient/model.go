package facadeclient

import (
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/propagation"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/rpc"
)

// maxModelHeader bounds one header of a model client that is passed on, in
// bytes.
const maxModelHeader = 4 << 10

// modelHeaders are what the wires of models need of a client's header. The key
// is not among them: it is added outside.
func modelHeaders() []string {
	return []string{"Accept", "Content-Type", "Content-Encoding", "Anthropic-Version", "Anthropic-Beta"}
}

// modelTransport adds the run's authority to the requests of a model client.
type modelTransport struct {
	next            http.RoundTripper
	token, envelope string
	// trace says to modelproxy which trace the request belongs to.
	trace propagation.TextMapPropagator
}

// RoundTrip sends what the model's wire needs, its query included, the run's
// authority, and the trace of the request's context, which modelproxy keeps to
// itself. What else a client library says about itself and its machine stays
// here. An answer that leads elsewhere is model_failed: the authority is for
// modelproxy alone.
func (t modelTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	out, err := t.request(r)
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close())
		}
		return nil, err
	}
	res, err := t.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusMultipleChoices && res.StatusCode < http.StatusBadRequest {
		return nil, errors.Join(fault.New(fault.ModelFailed, "facadeclient.model"), res.Body.Close())
	}
	return res, nil
}

// request is what leaves of r, whose body it takes over.
func (t modelTransport) request(r *http.Request) (*http.Request, error) {
	if t.token == "" {
		return nil, fault.New(fault.CapabilityMissing, "facadeclient.model",
			fault.Detail("no capability for "+string(capability.ModelProxy)))
	}
	out := r.Clone(r.Context())
	out.Header, out.Trailer = make(http.Header), nil
	for _, name := range modelHeaders() {
		size := 0
		for _, v := range r.Header.Values(name) {
			size += len(v)
			out.Header.Add(name, v)
		}
		if size > maxModelHeader {
			return nil, fault.New(fault.InvalidRequest, "facadeclient.model", fault.Detail(name+": at most 4 KiB"))
		}
	}
	out.Header.Set("Authorization", "Bearer "+t.token)
	out.Header.Set(rpc.EnvelopeHeader, t.envelope)
	t.trace.Inject(r.Context(), propagation.HeaderCarrier(out.Header))
	return out, nil
}
