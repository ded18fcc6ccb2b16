package fault_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
)

func TestRoundTripOverHTTP(t *testing.T) {
	t.Parallel()
	for _, code := range fault.Codes() {
		want := fault.Wrap(errors.New(canary), code, canary, fault.Detail("field: <rule> & more"), fault.RetryAfter(90*time.Second), fault.SideEffects("known"))
		rec := httptest.NewRecorder()
		fault.WriteHTTP(rec, want)
		if rec.Code != code.HTTPStatus() || rec.Header().Get("Retry-After") != "90" || rec.Header().Get("Content-Type") != "application/json" || rec.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: status %d, header %v", code, rec.Code, rec.Header())
		}
		if strings.Contains(rec.Body.String(), canary) {
			t.Errorf("%s: the cause is in the body", code)
		}
		got, ok := fault.ReadHTTP(rec.Body.Bytes())
		if !ok || got.Code() != code || got.Detail() != want.Detail() || got.Incident() != want.Incident() || got.RetryAfter() != want.RetryAfter() || got.SideEffects() != "known" {
			t.Errorf("%s: arrives as %+v", code, got)
		}
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	e := fault.New(fault.RateLimited, "op", fault.RetryAfter(time.Second))
	rec := httptest.NewRecorder()
	fault.WriteHTTP(rec, e)
	want := `{"error":{"code":"rate_limited","category":"throttled","message":"Too many requests. Wait and try again.","retryable":true,"retry_after_seconds":1,"incident_id":"` + e.Incident() + `"}}` + "\n"
	if rec.Body.String() != want {
		t.Errorf("got  %s\nwant %s", rec.Body, want)
	}
	for err, status := range map[error]int{errors.New(canary): 500, nil: 500} {
		rec := httptest.NewRecorder()
		fault.WriteHTTP(rec, err)
		if rec.Code != status || strings.Contains(rec.Body.String(), canary) || rec.Header().Get("Retry-After") != "" {
			t.Errorf("%v: %d %s", err, rec.Code, rec.Body)
		}
	}
}

func TestReadHTTPRefuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "null", "{}", `{"error":null}`, `{"error":{}}`, `{"error":{"code":"made_up"}}`, `{"error":"internal"}`, "<html>", `[]`} {
		if e, ok := fault.ReadHTTP([]byte(body)); ok {
			t.Errorf("%s is %v", body, e)
		}
	}
	e, ok := fault.ReadHTTP([]byte(`{"error":{"code":"capacity","message":"` + canary + `","retryable":false,"category":"internal","retry_after_seconds":99999999999,"side_effect_status":"` + canary + `","incident_id":"` + strings.Repeat("i", 65) + `"}}`))
	if !ok || e.SideEffects() != "" || e.RetryAfter() != 24*time.Hour || len(e.Incident()) > 64 || !e.Safe().Retryable || e.Safe().Category != fault.CategoryCapacity || strings.Contains(e.Safe().Message, canary) {
		t.Errorf("%+v", e.Safe())
	}
	if e, ok := fault.ReadHTTP([]byte(`{"error":{"code":"capacity","retry_after_seconds":-5}}`)); !ok || e.RetryAfter() != 0 {
		t.Errorf("%+v", e)
	}
}

func FuzzReadHTTP(f *testing.F) {
	f.Add([]byte(`{"error":{"code":"stale_lease","category":"authorization","message":"m","detail":"d","retryable":false,"retry_after_seconds":3,"side_effect_status":"none","incident_id":"inc_1"}}`))
	f.Add([]byte(`{"error":{"code":"internal","detail":"\ud800","retry_after_seconds":9223372036854775807}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, ok := fault.ReadHTTP(body)
		if !ok {
			return
		}
		rec := httptest.NewRecorder()
		fault.WriteHTTP(rec, e)
		again, ok := fault.ReadHTTP(rec.Body.Bytes())
		if !ok || again.Code() != e.Code() || again.Detail() != e.Detail() || again.Incident() != e.Incident() || again.RetryAfter() != e.RetryAfter() || again.SideEffects() != e.SideEffects() {
			t.Errorf("%s becomes %+v", body, again)
		}
		if c := fault.FromConnect(fault.ToConnect(e), "op"); c.Code() != e.Code() {
			t.Errorf("%s arrives as %s", body, c.Code())
		}
		if rec.Code < http.StatusBadRequest || !json.Valid(rec.Body.Bytes()) {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	})
}
