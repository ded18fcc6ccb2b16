package certify

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// mostSpans bounds what is kept of a run of requirement 15, in bytes.
const mostSpans = 64 << 20

// collector takes the spans of the stack, as an OTLP/HTTP collector does. It can go
// away and come back at its address.
type collector struct {
	address string

	mu   sync.Mutex
	raw  []byte
	kept []span

	server *http.Server
	ended  sync.WaitGroup
}

// span is what is needed of one.
type span struct {
	Trace, Service, Name string
	// Keys of its attributes and of those of its events.
	Keys []string
}

func newCollector(ctx context.Context) (*collector, error) {
	c := &collector{address: "127.0.0.1:0"}
	return c, c.open(ctx)
}

// endpoint is what a service is told.
func (c *collector) endpoint() string { return "http://" + c.address }

// open listens, at the address of before if there was one.
func (c *collector) open(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	c.address = l.Addr().String()
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second}
	c.server = server
	c.ended.Go(func() { _ = server.Serve(l) }) // until it is closed
	return nil
}

// close goes away, connections too.
func (c *collector) close() error {
	err := c.server.Close()
	c.ended.Wait()
	return err
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, mostSpans))
	var data tracev1.TracesData // an ExportTraceServiceRequest has the same one field
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.raw)+len(body) > mostSpans {
		http.Error(w, "too many", http.StatusInsufficientStorage)
		return
	}
	c.raw, c.kept = append(c.raw, body...), append(c.kept, spansOf(&data)...)
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

func spansOf(data *tracev1.TracesData) (all []span) {
	for _, of := range data.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := span{Trace: hex.EncodeToString(s.GetTraceId()), Service: service, Name: s.GetName()}
				for _, a := range s.GetAttributes() {
					one.Keys = append(one.Keys, a.GetKey())
				}
				for _, e := range s.GetEvents() {
					for _, a := range e.GetAttributes() {
						one.Keys = append(one.Keys, a.GetKey())
					}
				}
				all = append(all, one)
			}
		}
	}
	return all
}

// reset forgets what came before.
func (c *collector) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw, c.kept = nil, nil
}

// spans are those that came, and the bytes that they came as.
func (c *collector) spans() ([]span, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]span(nil), c.kept...), string(c.raw)
}

// errNoSpans says that nothing came.
var errNoSpans = errors.New("no span came to the collector")
