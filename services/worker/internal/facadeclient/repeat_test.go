package facadeclient

import (
	"context"
	"errors"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/fault"
)

func TestRepeat(t *testing.T) {
	away := fault.New(fault.DependencyUnavailable, "test")
	const all = 31 * firstPause
	for name, c := range map[string]struct {
		// errs of the attempts; sent are those that had a connection.
		errs    []error
		sent    string
		want    fault.Code
		unknown bool
		calls   int
		took    time.Duration
	}{
		"at once":                 {errs: []error{nil}, sent: "y", calls: 1},
		"at the second time":      {errs: []error{away, nil}, sent: "yy", calls: 2, took: firstPause},
		"never":                   {errs: []error{away, away, away, away, away, away}, sent: "yyyyyy", want: fault.DependencyUnavailable, unknown: true, calls: attempts, took: all},
		"never reached":           {errs: []error{away, away, away, away, away, away}, sent: "nnnnnn", want: fault.DependencyUnavailable, calls: attempts, took: all},
		"lost and then away":      {errs: []error{away, away, away, away, away, away}, sent: "ynnnnn", want: fault.DependencyUnavailable, unknown: true, calls: attempts, took: all},
		"answered":                {errs: []error{fault.New(fault.ToolDenied, "test")}, sent: "y", want: fault.ToolDenied, calls: 1},
		"answered after all":      {errs: []error{away, fault.New(fault.StaleLease, "test")}, sent: "yy", want: fault.StaleLease, calls: 2, took: firstPause},
		"an error that is no one": {errs: []error{errors.New("x"), nil}, sent: "yy", calls: 2, took: firstPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				began := time.Now()
				out := repeat(t.Context(), firstPause, func(ctx context.Context) error {
					if c.sent[calls] == 'y' {
						httptrace.ContextClientTrace(ctx).GotConn(httptrace.GotConnInfo{})
					}
					calls++
					return c.errs[calls-1]
				})
				if fault.CodeOf(out.err) != c.want || out.unknown != c.unknown || calls != c.calls || time.Since(began) != c.took {
					t.Errorf("%v, unknown %v, %d calls in %v", out.err, out.unknown, calls, time.Since(began))
				}
			})
		})
	}
	t.Run("the run ends meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), firstPause/2)
			defer cancel()
			out := repeat(ctx, firstPause, func(context.Context) error { return away })
			if !fault.Is(out.err, fault.DeadlineExceeded) {
				t.Error(out.err)
			}
		})
	})
}

// A refusal says nothing of an earlier attempt that may have arrived, also where
// the run has ended meanwhile. What ends the run itself says nothing either, and
// is what the caller is told.
func TestMayHaveActed(t *testing.T) {
	away, refusal := fault.New(fault.DependencyUnavailable, "test"), fault.New(fault.ToolDenied, "test")
	for name, c := range map[string]struct {
		errs []error
		sent string
		// ends says that the run ends during the last attempt.
		ends bool
		want bool
	}{
		"refused":                            {[]error{refusal}, "y", false, false},
		"refused at the end":                 {[]error{refusal}, "y", true, false},
		"never arrived and refused":          {[]error{away, refusal}, "ny", false, false},
		"lost and refused":                   {[]error{away, refusal}, "yy", false, true},
		"lost and refused at the end":        {[]error{away, refusal}, "yy", true, true},
		"lost, away and refused at the end":  {[]error{away, away, refusal}, "yny", true, true},
		"lost and over":                      {[]error{away, fault.New(fault.StaleLease, "test")}, "yy", true, false},
		"lost and answered from the record":  {[]error{away, fault.New(fault.ToolOutcomeUnknown, "test")}, "yy", false, false},
		"lost at the end":                    {[]error{context.Canceled}, "y", true, false},
		"never arrived and refused, run end": {[]error{away, refusal}, "ny", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				calls := 0
				out := repeat(ctx, firstPause, func(ctx context.Context) error {
					if c.sent[calls] == 'y' {
						httptrace.ContextClientTrace(ctx).GotConn(httptrace.GotConnInfo{})
					}
					if calls++; c.ends && calls == len(c.errs) {
						cancel()
					}
					return c.errs[calls-1]
				})
				if out.mayHaveActed(ctx) != c.want || calls != len(c.errs) {
					t.Errorf("%v: %v after %d calls", out, !c.want, calls)
				}
			})
		})
	}
}
