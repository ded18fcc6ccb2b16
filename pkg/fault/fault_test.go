package fault_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"cofferdam.dev/pkg/fault"
)

func TestFrom(t *testing.T) {
	t.Parallel()
	own := fault.New(fault.StaleLease, "op")
	for _, c := range []struct {
		err  error
		want fault.Code
	}{
		{own, fault.StaleLease},
		{fmt.Errorf("wrapped: %w", own), fault.StaleLease},
		{context.Canceled, fault.Cancelled},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), fault.DeadlineExceeded},
		{errors.New("anything"), fault.Internal},
		{fault.Wrap(own, fault.ToolOutcomeUnknown, "op"), fault.ToolOutcomeUnknown}, // the outermost speaks
	} {
		if got := fault.From(c.err, "op"); got.Code() != c.want || !fault.Is(fmt.Errorf("x: %w", got), c.want) || fault.CodeOf(got) != c.want {
			t.Errorf("%v is %s, want %s", c.err, got.Code(), c.want)
		}
	}
	if fault.From(nil, "op") != nil || fault.CodeOf(nil) != "" || fault.Is(nil, fault.Internal) || fault.Is(errors.New("x"), fault.Internal) {
		t.Error("no error is an error")
	}
	if e := fault.From(fmt.Errorf("w: %w", own), "other"); e != own {
		t.Error("an error does not stay what it is")
	}
}

func TestErrorIsForTheLog(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	e := fault.Wrap(cause, fault.PersistenceFailed, "store.Put", fault.Detail("field: too long"), fault.RetryAfter(1500*time.Millisecond), fault.SideEffects("possible"))
	for _, part := range []string{"store.Put", "persistence_failed", "field: too long", "disk full"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %q", e.Error(), part)
		}
	}
	if !errors.Is(e, cause) || e.Op() != "store.Put" || e.Detail() != "field: too long" || e.RetryAfter() != 1500*time.Millisecond || e.SideEffects() != "possible" {
		t.Errorf("%+v", e)
	}
	if s := e.Safe(); *s.RetryAfterSeconds != 2 || !s.Retryable || s.Message != fault.PersistenceFailed.Message() {
		t.Errorf("%+v", s)
	}
	if a, b := fault.New(fault.Internal, "op"), fault.New(fault.Internal, "op"); a.Incident() == b.Incident() || !strings.HasPrefix(a.Incident(), "inc_") || len(a.Incident()) > 64 {
		t.Errorf("incidents %q and %q", a.Incident(), b.Incident())
	}
	if s := fault.New(fault.Internal, "op", fault.RetryAfter(-time.Second)).Safe(); s.RetryAfterSeconds != nil {
		t.Errorf("%d s", *s.RetryAfterSeconds)
	}
}

func TestDetailIsBounded(t *testing.T) {
	t.Parallel()
	for _, d := range []string{
		strings.Repeat("x", 5000), strings.Repeat("é", 5000), "x" + strings.Repeat("日本", 5000), strings.Repeat("\xff", 5000), "bad \xff byte", strings.Repeat("x", 1024),
	} {
		e := fault.New(fault.InvalidRequest, "op", fault.Detail(d))
		if got := e.Detail(); len(got) > 1024 || !utf8.ValidString(got) || got == "" {
			t.Errorf("detail of %d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if got := fault.FromConnect(fault.ToConnect(e), "op"); got.Code() != fault.InvalidRequest {
			t.Errorf("arrives as %s", got.Code())
		}
		if n := len(fault.ToConnect(e).Details()); n != 1 {
			t.Errorf("%d details are packed", n)
		}
	}
}
