// Package facadeclient is the worker's only way out: clients of the brokers
// that bind named, with the call tokens of one run.
package facadeclient

import (
	"net/http"
	"time"

	"connectrpc.com/connect/v2"
	"go.opentelemetry.io/otel/propagation"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

// Endpoints are the addresses that bind gave, each with the one identity that
// may answer there.
type Endpoints struct {
	ToolBroker, ThreadState, Memory, FileBroker, ModelProxy rpc.Endpoint
	ModelAlias                                              string
}

// Adapter is what this worker runs. It loads only the state of threads that belong
// to it.
type Adapter struct{ ID, Version string }

// Connector makes the facades of runs. It implements session.Connector.
type Connector struct {
	endpoints Endpoints
	adapter   Adapter
	pause     time.Duration // before a request is repeated for the first time
	model     *http.Client
	trace     propagation.TextMapPropagator
	clients   []*http.Client
	tools     toolbrokerv1connect.ToolBrokerServiceClient
	thread    threadstatev1connect.ThreadStateServiceClient
	files     filebrokerv1connect.FileBrokerServiceClient
	memory    memoryv1connect.MemoryServiceClient
}

// New makes a Connector. It makes no connection.
func New(e Endpoints, a Adapter, src identity.Source, tel *telemetry.Telemetry) (*Connector, error) {
	c := &Connector{endpoints: e, adapter: a, pause: firstPause, model: e.ModelProxy.HTTPClient(src), trace: tel.Propagator}
	c.clients = append(c.clients, c.model)
	conns := make([]*connect.Client, 0, 4)
	for _, ep := range []rpc.Endpoint{e.ToolBroker, e.ThreadState, e.FileBroker, e.Memory} {
		hc := ep.HTTPClient(src)
		conn, err := rpc.NewClient(hc, ep.BaseURL(), tel)
		if err != nil {
			return nil, err
		}
		c.clients, conns = append(c.clients, hc), append(conns, conn)
	}
	c.tools = toolbrokerv1connect.NewToolBrokerServiceClient(conns[0])
	c.thread = threadstatev1connect.NewThreadStateServiceClient(conns[1])
	c.files = filebrokerv1connect.NewFileBrokerServiceClient(conns[2])
	c.memory = memoryv1connect.NewMemoryServiceClient(conns[3])
	return c, nil
}

// Connect makes the facades of one run. What the run has no token for is
// refused when it is called. point is nil where nothing will be committed.
func (c *Connector) Connect(env fence.Envelope, tokens []session.Token, point session.CommitPoint) (harness.Facades, error) {
	by := make(map[capability.Audience]string, len(tokens))
	for _, t := range tokens {
		by[capability.Audience(t.Audience)] = t.Token
	}
	a := authority{env: env, adapter: c.adapter, tokens: by, pause: c.pause}
	header, err := rpc.EncodeEnvelope(a.envelope("model"))
	if err != nil {
		return harness.Facades{}, err
	}
	return harness.Facades{
		Model: harness.Model{
			HTTP: &http.Client{
				Transport:     modelTransport{next: c.model.Transport, token: by[capability.ModelProxy], envelope: header, trace: c.trace},
				CheckRedirect: c.model.CheckRedirect,
			},
			BaseURL: c.endpoints.ModelProxy.BaseURL() + "/v1/",
			RootURL: c.endpoints.ModelProxy.BaseURL() + "/",
			Alias:   c.endpoints.ModelAlias,
		},
		Tools:  toolCaller{a, c.tools},
		Thread: &threadState{authority: a, client: c.thread, point: point},
		Files:  files{a, c.files},
		Memory: memory{a, c.memory},
	}, nil
}

// Close gives up the connections.
func (c *Connector) Close() {
	for _, hc := range c.clients {
		hc.CloseIdleConnections()
	}
}

// authority is what one run may show: its envelope and its tokens.
type authority struct {
	env     fence.Envelope
	adapter Adapter
	tokens  map[capability.Audience]string
	pause   time.Duration
}

// envelope for one effect of the run.
func (a authority) envelope(key string) fence.Envelope {
	e := a.env
	e.IdempotencyKey = key
	return e
}

func (a authority) token(aud capability.Audience) (string, error) {
	t, ok := a.tokens[aud]
	if !ok {
		return "", fault.New(fault.CapabilityMissing, "facadeclient", fault.Detail("no capability for "+string(aud)))
	}
	return t, nil
}
