package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

const (
	// maxBreaks is how often in a row a stream may break without a new event.
	maxBreaks  = 8
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
	// silence is how long a stream may say nothing; the server comments on its own
	// silence every 15 s.
	silence = 60 * time.Second
)

// Event is one canonical event, as it came and as it reads.
type Event struct {
	Raw json.RawMessage
	event.Event
}

// IsTerminal reports whether it is the last event of its run.
func (e Event) IsTerminal() bool { return e.Type().Terminal() }

// ErrTruncated says that the stream of a run ended before its terminal event, again
// and again.
var ErrTruncated = errors.New("apiclient: the stream ended before the run did")

// Follow gives each event of a run, from the first on and in order, to do, until
// the terminal has been given. A stream that breaks is taken up again after the
// last event that came; nothing is given twice. It ends with the error of do, with
// the API's, or with ErrTruncated.
func (c *Client) Follow(ctx context.Context, runID string, do func(Event) error) error {
	f := follower{client: c, runID: runID, do: do}
	breaks, pause := 0, c.pause
	for {
		before := f.next
		err := f.once(ctx)
		var refused *fault.Error
		switch {
		case f.ended, f.given != nil:
			return f.given
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused) && !refused.Code().Retryable(), errors.Is(err, errWrong):
			return err
		}
		if f.next > before {
			breaks, pause = 0, c.pause
		}
		if breaks++; breaks > maxBreaks {
			return errors.Join(ErrTruncated, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// errWrong is a stream that another attempt would not make right.
var errWrong = errors.New("apiclient: the stream is not one of this run")

// follower is one Follow over all its streams.
type follower struct {
	client *Client
	runID  string
	do     func(Event) error

	next  uint64 // the sequence from which on events are new
	ended bool   // the terminal was given
	given error  // of do
}

// once reads one stream to its end.
func (f *follower) once(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{}
	if f.next > 0 {
		header.Set("Last-Event-ID", strconv.FormatUint(f.next-1, 10))
	}
	res, err := f.client.open(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(f.runID)+"/stream?protocol=canonical", header, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	in := newSSEReader(watched{res.Body, watchdog})
	for {
		fr, err := in.next()
		if err != nil {
			return err
		}
		if err := f.take(fr); err != nil || f.ended {
			return err
		}
	}
}

// watched puts a timer off with everything that is read.
type watched struct {
	io.Reader

	timer *time.Timer
}

// Read implements io.Reader.
func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(silence)
	}
	return n, err
}

func (f *follower) take(fr frame) error {
	e := Event{Raw: json.RawMessage(fr.data)}
	if err := json.Unmarshal(e.Raw, &e.Event); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	switch {
	case e.RunID != f.runID:
		return fmt.Errorf("%w: an event of another run", errWrong)
	case e.Sequence < f.next:
		return nil // it came before the break as well
	}
	// A gap is lawful: events that are for operators only are left out.
	f.next = e.Sequence + 1
	if f.given = f.do(e); f.given != nil {
		return f.given
	}
	f.ended = e.IsTerminal()
	return nil
}
