package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

const (
	testRun   = "run-1"
	testToken = "the-token"
)

// server is an API whose streams a test writes.
type server struct {
	client  *Client
	mu      sync.Mutex
	cursors []string
}

// serve serves each stream with the function for its turn, the last one for all
// that follow.
func serve(t *testing.T, streams ...func(w http.ResponseWriter, from uint64)) *server {
	t.Helper()
	s := &server{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/runs/"+testRun+"/stream", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+testToken {
			fault.WriteHTTP(w, fault.New(fault.Unauthenticated, "test"))
			return
		}
		cursor, from := r.Header.Get("Last-Event-ID"), uint64(0)
		if n, err := strconv.ParseUint(cursor, 10, 64); err == nil {
			from = n + 1
		}
		s.mu.Lock()
		turn := min(len(s.cursors), len(streams)-1)
		s.cursors = append(s.cursors, cursor)
		s.mu.Unlock()
		streams[turn](w, from)
	})
	ts := httptest.NewServer(mux)
	t.Cleanup(ts.Close)
	c, err := New(ts.URL+"/", func() (string, error) { return testToken, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.pause = time.Millisecond
	s.client = c
	return s
}

// raw is one event of a run of four.
func raw(t *testing.T, run string, seq uint64) string {
	t.Helper()
	data := []event.Data{
		event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"},
		event.TextStarted{MessageID: "m"},
		event.TextFinished{MessageID: "m"},
		event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone},
	}[seq]
	b, err := json.Marshal(event.Draft{Data: data}.Event(run, "c", seq, time.Unix(1, 0).UTC()))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// upTo writes the events from the cursor up to and without the last.
func upTo(t *testing.T, end uint64) func(http.ResponseWriter, uint64) {
	t.Helper()
	return func(w http.ResponseWriter, from uint64) {
		for seq := from; seq < end; seq++ {
			_, _ = fmt.Fprintf(w, "id: %d\nevent: x\ndata: %s\n\n", seq, raw(t, testRun, seq))
		}
	}
}

func refuse(code fault.Code) func(http.ResponseWriter, uint64) {
	return func(w http.ResponseWriter, _ uint64) { fault.WriteHTTP(w, fault.New(code, "test")) }
}

func follow(t *testing.T, s *server) ([]uint64, error) {
	t.Helper()
	var got []uint64
	err := s.client.Follow(t.Context(), testRun, func(e Event) error {
		got = append(got, e.Sequence)
		return nil
	})
	return got, err
}

func TestFollowGivesEachEventOnce(t *testing.T) {
	all := []uint64{0, 1, 2, 3}
	for _, c := range []struct {
		name    string
		streams []func(http.ResponseWriter, uint64)
		cursors []string
	}{
		{"one stream", []func(http.ResponseWriter, uint64){upTo(t, 4)}, []string{""}},
		{"a break", []func(http.ResponseWriter, uint64){upTo(t, 2), upTo(t, 4)}, []string{"", "1"}},
		// The cursor is not lost with a stream that says nothing.
		{"a break before the first id", []func(http.ResponseWriter, uint64){upTo(t, 2), upTo(t, 0), upTo(t, 4)}, []string{"", "1", "1"}},
		{"a server that is away for a moment", []func(http.ResponseWriter, uint64){upTo(t, 1), refuse(fault.DependencyUnavailable), upTo(t, 4)}, []string{"", "0", "0"}},
		{"a server that ignores the cursor", []func(http.ResponseWriter, uint64){upTo(t, 2), func(w http.ResponseWriter, _ uint64) { upTo(t, 4)(w, 0) }}, []string{"", "1"}},
	} {
		s := serve(t, c.streams...)
		got, err := follow(t, s)
		if err != nil || !slices.Equal(got, all) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if !slices.Equal(s.cursors, c.cursors) {
			t.Errorf("%s: cursors %q, want %q", c.name, s.cursors, c.cursors)
		}
	}
}

func TestAStreamThatNeverEndsItsRunIsNoSuccess(t *testing.T) {
	s := serve(t, upTo(t, 2))
	got, err := follow(t, s)
	if !errors.Is(err, ErrTruncated) || !slices.Equal(got, []uint64{0, 1}) {
		t.Errorf("%v, %v", got, err)
	}
	if n := len(s.cursors); n != maxBreaks+1 {
		t.Errorf("%d attempts", n)
	}
}

func TestAnAnswerThatIsFinalIsNotAskedForAgain(t *testing.T) {
	other := func(w http.ResponseWriter, _ uint64) {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", raw(t, "run-2", 0))
	}
	noise := func(w http.ResponseWriter, _ uint64) { _, _ = fmt.Fprint(w, "data: {}\n\n") }
	for _, c := range []struct {
		name   string
		stream func(http.ResponseWriter, uint64)
		want   func(error) bool
	}{
		{"not found", refuse(fault.NotFound), func(err error) bool { return fault.Is(err, fault.NotFound) }},
		{"another run", other, func(err error) bool { return errors.Is(err, errWrong) }},
		{"no event", noise, func(err error) bool { return errors.Is(err, errWrong) }},
	} {
		s := serve(t, c.stream)
		got, err := follow(t, s)
		if len(got) > 0 || !c.want(err) || len(s.cursors) != 1 {
			t.Errorf("%s: %v, %v, %d attempts", c.name, got, err, len(s.cursors))
		}
	}
}

func TestFollowEndsWithWhoeverAsked(t *testing.T) {
	s := serve(t, upTo(t, 4))
	stop := errors.New("enough")
	if err := s.client.Follow(t.Context(), testRun, func(Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hangs := serve(t, func(w http.ResponseWriter, _ uint64) {
		upTo(t, 1)(w, 0)
		_ = http.NewResponseController(w).Flush()
		<-ctx.Done()
	})
	err := hangs.client.Follow(ctx, testRun, func(Event) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestErrorsOfTheAPI(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/runs", func(w http.ResponseWriter, _ *http.Request) {
		fault.WriteHTTP(w, fault.New(fault.InvalidRequest, "test", fault.Detail("message: required")))
	})
	mux.HandleFunc("GET /api/v1/runs/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	mux.HandleFunc("GET /api/v1/runs/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"run_id":%q}`, strings.Repeat("x", maxAnswer))
	})
	ts := httptest.NewServer(mux)
	defer ts.Close()
	c, err := New(ts.URL, func() (string, error) { return testToken, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Start(t.Context(), StartRequest{})
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Code() != fault.InvalidRequest || refused.Detail() != "message: required" {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"redirect", "large", "unknown"} {
		if _, err := c.Run(t.Context(), id); err == nil {
			t.Errorf("%s: no error", id)
		} else if strings.Contains(err.Error(), testToken) {
			t.Errorf("%s: the error tells the token", id)
		}
	}
}

func TestBaseURLs(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:80", "ftp://x", "http://", "unix:///x"} {
		if _, err := New(u, nil); err == nil {
			t.Errorf("%q was taken", u)
		}
	}
}
