package proxy

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// maxTokens bounds what one call may be counted as.
const maxTokens = 1 << 40

// usage is how many tokens an answer says that it took. An endpoint that says
// nothing is counted as nothing.
type usage struct{ in, out int64 }

// set takes counts that stand in an answer; what is nonsense is left out.
func (u *usage) set(in, out *int64) {
	for _, c := range []struct {
		from, to *int64
	}{{in, &u.in}, {out, &u.out}} {
		if c.from != nil && *c.from >= 0 && *c.from <= maxTokens {
			*c.to = *c.from
		}
	}
}

// sum adds counts; nil is none of them.
func sum(counts ...*int64) *int64 {
	var total *int64
	for _, c := range counts {
		if c == nil || *c < 0 || *c > maxTokens {
			continue
		}
		if total == nil {
			total = new(int64)
		}
		*total += *c
	}
	return total
}

// meters count calls and tokens. Nothing that was said is in them.
type meters struct{ calls, tokens metric.Int64Counter }

func newMeters(m metric.Meter) (*meters, error) {
	if m == nil {
		m = noop.Meter{}
	}
	calls, err := m.Int64Counter("cofferdam.model.calls",
		metric.WithDescription("Model calls by alias, wire, kind (main, side, count, embedding) and outcome."))
	if err != nil {
		return nil, err
	}
	tokens, err := m.Int64Counter("cofferdam.model.tokens",
		metric.WithDescription("Tokens that endpoints reported, by alias, wire, kind and direction."))
	if err != nil {
		return nil, err
	}
	return &meters{calls: calls, tokens: tokens}, nil
}

// add counts a call that ended. An alias that is not configured has no name here:
// names of callers must not become labels.
func (m *meters) add(ctx context.Context, c *call, outcome string) {
	labels := []attribute.KeyValue{
		attribute.String("model_alias", c.alias), attribute.String("wire", string(c.to.wire)), attribute.String("kind", c.to.kind(c.side)),
	}
	m.calls.Add(ctx, 1, metric.WithAttributes(append(slices.Clip(labels), attribute.String("outcome", outcome))...))
	for direction, n := range map[string]int64{"input": c.out.usage.in, "output": c.out.usage.out} {
		if n > 0 {
			m.tokens.Add(ctx, n, metric.WithAttributes(append(slices.Clip(labels), attribute.String("direction", direction))...))
		}
	}
}
