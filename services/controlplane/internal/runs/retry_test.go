package runs_test

import (
	"context"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// How long to wait before another try comes from whoever knows: a throttled model tells
// it by its worker. It is bounded, and stands only where another try is worth it.
func TestHowLongToWaitReachesTheTerminal(t *testing.T) {
	said := func(n uint64) *uint64 { return &n }
	for name, c := range map[string]struct {
		code fault.Code
		says *uint64
		want *uint64
	}{
		"a throttled model":       {fault.RateLimited, said(17), said(17)},
		"an unavailable model":    {fault.ModelUnavailable, said(1), said(1)},
		"nothing was said":        {fault.RateLimited, nil, nil},
		"longer than is believed": {fault.RateLimited, said(1 << 52), said(24 * 60 * 60)},
		"not worth another try":   {fault.ModelFailed, said(17), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, func(**runstest.Stack) runstest.Script {
				return func(ctx context.Context, p *runstest.Play) error {
					return p.Emit(ctx, started(), event.RunError{
						Code: string(c.code), Message: c.code.Message(), Retryable: c.code.Retryable(), RetryAfterSeconds: c.says, SideEffectStatus: event.SideEffectsNone,
					})
				}
			}, runstest.Options{})
			e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID))
			if e.Code != string(c.code) || (e.RetryAfterSeconds == nil) != (c.want == nil) || c.want != nil && *e.RetryAfterSeconds != *c.want {
				t.Errorf("ended as %+v after %v s, want %v", e, e.RetryAfterSeconds, c.want)
			}
		})
	}
}
