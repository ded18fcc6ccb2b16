// Package proxy carries model calls from sandboxes to model endpoints, on the
// wires of OpenAI Chat Completions, OpenAI Responses, Anthropic Messages and
// Gemini, and adds the one thing that a sandbox never has: the key.
//
// A request says nothing about where it goes: the capability names the alias.
// Address, key and model name are the operator's; what a sandbox sends can change
// none of them. The model that a request names only tells calls that agents make
// on the side, for titles and summaries, from the others. Of its headers those go
// on that the wire needs (anthropic-version, anthropic-beta), and no other. Of
// its body the fields of the wire do; what would make the endpoint act on its own
// (fetch an address, search, keep the conversation, choose another model) is
// refused, or taken out where the alias says so, because the sandbox could reach
// the outside through it.
//
// An answer is passed on only while it is one. A stream that breaks, falls
// silent, carries an error, or ends without its terminal is reset, never ended:
// a cut answer must not look like a short one. Nothing of what an endpoint says
// when it fails reaches the sandbox or the log.
//
// The package expects a request that was authenticated, and its alias in the
// context ([WithAlias]). A request for embeddings ([PathEmbeddings]) names its
// alias by itself, as the model: who asks is a service, and what it may choose
// from are the aliases that the operator gave this wire.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"

	"cofferdam.dev/pkg/fault"
)

// Proxy is the handler of the routes. It is safe for concurrent use.
type Proxy struct {
	upstreams map[string]*upstream
	limits    Limits
	slots     chan struct{}
	logger    *slog.Logger
	meters    *meters
}

// Config of a Proxy.
type Config struct {
	// Aliases by name: what capabilities call them.
	Aliases map[string]Alias
	// Limits; a zero field takes its default.
	Limits Limits
}

// Deps are what a Proxy works with.
type Deps struct {
	// Logger gets one record for each call, without anything that was said.
	Logger *slog.Logger
	// Demo serves the aliases of [KindDemo]; required where there is one.
	Demo http.Handler
	// Meter counts calls and tokens; nil counts nothing.
	Meter metric.Meter
}

// New makes a Proxy. It reads every key and certificate file once, so that a
// wrong path is an error here and not at the first call. The error names
// everything that is wrong.
func New(cfg Config, deps Deps) (*Proxy, error) {
	limits := cfg.Limits.withDefaults()
	p := &Proxy{
		upstreams: make(map[string]*upstream, len(cfg.Aliases)),
		limits:    limits,
		slots:     make(chan struct{}, limits.MaxCalls),
		logger:    deps.Logger,
	}
	var err error
	if p.meters, err = newMeters(deps.Meter); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	var errs []error
	if len(cfg.Aliases) == 0 {
		errs = append(errs, errors.New("there are no model aliases: configure at least one"))
	}
	for name, alias := range cfg.Aliases {
		up, err := newUpstream(name, alias, limits, deps.Demo)
		if err != nil {
			errs = append(errs, fmt.Errorf("model alias %q: %w", name, err))
			continue
		}
		p.upstreams[name] = up
	}
	if err := errors.Join(errs...); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close closes idle connections. Calls that run are not affected.
func (p *Proxy) Close() {
	for _, up := range p.upstreams {
		up.close()
	}
}

// ServeHTTP carries one call. Before the answer begins it fails with the JSON
// error of the wire and a fault code in the header [FaultHeader]:
// invalid_request, request_too_large, capability_missing, not_found, capacity,
// rate_limited, model_unavailable, model_failed, deadline_exceeded, cancelled.
// Afterwards it panics with [http.ErrAbortHandler], which resets the stream;
// only where the wire has a terminal for failures (response.failed) does the
// stream end with it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{began: time.Now(), out: newResponse(w, p.limits)}
	err := p.carry(w, r, c)
	p.record(r.Context(), c, err)
	switch {
	case err == nil, c.out.ended:
	case c.out.begun:
		panic(http.ErrAbortHandler)
	default:
		writeFault(w, fault.From(err, "proxy"), c.to.wire, c.noRetry)
	}
}

// call is one request on its way.
type call struct {
	began   time.Time
	to      route
	alias   string
	side    bool
	noRetry bool
	status  int // of the upstream; 0 before it answered
	out     *response
}

func (p *Proxy) carry(w http.ResponseWriter, r *http.Request, c *call) error {
	to, known := routeOf(r)
	if c.to = to; !known {
		return fault.New(fault.NotFound, "proxy.route")
	}
	if to.wire == OpenAIEmbeddings {
		return p.exchange(w, r, c, func(req *request) (*upstream, error) { return p.find(c, req.fields.text("model")) })
	}
	alias, ok := aliasFrom(r.Context())
	if !ok {
		return fault.New(fault.CapabilityMissing, "proxy.route")
	}
	up, err := p.find(c, alias)
	if err != nil {
		return err
	}
	if c.to.list {
		return c.out.list(c.alias)
	}
	return p.exchange(w, r, c, func(*request) (*upstream, error) { return up, nil })
}

// exchange reads a request, sends it to the upstream that of finds for it, and
// passes the answer on.
func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, c *call, of func(*request) (*upstream, error)) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		return fault.New(fault.Capacity, "proxy.carry", fault.RetryAfter(time.Second))
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.limits.MaxDuration)
	defer cancel()
	req, err := readRequest(w, r, c.to, p.limits)
	if err != nil {
		return err
	}
	up, err := of(req)
	if err != nil {
		return err
	}
	if err := req.admit(up.admission); err != nil {
		return err
	}
	c.side = up.isSide(req.model)
	answer, err := up.send(ctx, req)
	if err != nil {
		return err
	}
	defer answer.close()
	c.status = answer.status
	if req.stream {
		return relayStream(c.out, answer, c.to.follower(), p.limits)
	}
	return relayWhole(c.out, answer, c.to.follower(), p.limits)
}

// find is the upstream of an alias that speaks the wire of the call.
func (p *Proxy) find(c *call, alias string) (*upstream, error) {
	up, ok := p.upstreams[alias]
	if !ok {
		return nil, fault.New(fault.NotFound, "proxy.route", fault.Detail("model_alias: not configured here"))
	}
	c.alias, c.noRetry = alias, up.noRetry
	if up.base[c.to.wire] == nil && !c.to.list {
		return nil, fault.New(fault.NotFound, "proxy.route", fault.Detail("model_alias: does not speak this wire"))
	}
	return up, nil
}

// record logs one line for a call and counts it. Reasons are words of this
// package: the text of an error may hold what an endpoint said.
func (p *Proxy) record(ctx context.Context, c *call, err error) {
	attrs := []slog.Attr{
		slog.String("model_alias", c.alias),
		slog.Int("upstream_status", c.status),
		slog.String("wire", string(c.to.wire)),
		slog.String("kind", c.to.kind(c.side)),
		slog.Int("frames", c.out.frames),
		slog.Int64("bytes", c.out.bytes),
		slog.Int64("input_tokens", c.out.usage.in),
		slog.Int64("output_tokens", c.out.usage.out),
		slog.Int64("duration_ms", time.Since(c.began).Milliseconds()),
	}
	if err == nil {
		p.meters.add(ctx, c, "ok")
		p.logger.LogAttrs(ctx, slog.LevelInfo, "model call finished", attrs...)
		return
	}
	e := fault.From(err, "proxy")
	p.meters.add(ctx, c, string(e.Code()))
	attrs = append(attrs,
		slog.String("code", string(e.Code())),
		slog.String("reason", reasonOf(e)),
		slog.Bool("reset", c.out.begun && !c.out.ended),
		slog.String("incident_id", e.Incident()))
	p.logger.LogAttrs(ctx, slog.LevelWarn, "model call failed", attrs...)
}
