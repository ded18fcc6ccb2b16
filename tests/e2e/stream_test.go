package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/tests/internal/apiclient"
)

// Whoever reads a run's events, whenever and in whatever pieces, reads the same.
func TestEveryReaderOfARunReadsTheSame(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	run := c.begin(t, ">>repeat 40 one\n>>sleep 200\n>>repeat 40 two\n>>think hm\n>>sleep 200\n>>repeat 40 three")
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	var whole, pieces, first []apiclient.Event
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { whole, err = w.user.Follow(ctx, run.RunID); return err })
	g.Go(func() (err error) { pieces, err = followInPieces(ctx, w.user, run.RunID, 5); return err })
	g.Go(func() (err error) { first, err = followUntil(ctx, w.user, run.RunID, 3); return err })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	r := turn{run, whole}
	r.whole(t, c)
	r.finished(t)
	log, ended, err := w.user.Log(t.Context(), run.RunID, pageSize)
	if err != nil || !ended {
		t.Fatalf("log: ended %v, %v", ended, err)
	}
	late, err := w.user.Follow(t.Context(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the pages", log, whole)
	same(t, "the stream in pieces", pieces, whole)
	same(t, "a reader that came late", late, whole)
	same(t, "a reader that left", first, whole[:len(first)])
}

// same compares what two readers read, byte by byte.
func same(t *testing.T, what string, got, want []apiclient.Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d events, want %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if string(got[i].Raw) != string(want[i].Raw) {
			t.Errorf("%s: event %d is %s, want %s", what, i, got[i].Raw, want[i].Raw)
		}
	}
}

// followInPieces is a client whose connection breaks after every n events.
func followInPieces(ctx context.Context, c *apiclient.Client, runID string, n int) (events []apiclient.Event, err error) {
	var last *uint64
	for {
		piece, err := followFrom(ctx, c, runID, last, n)
		if err != nil {
			return nil, fmt.Errorf("after %d events: %w", len(events), err)
		}
		events = append(events, piece...)
		if len(events) == 0 {
			return nil, errors.New("a stream without an event")
		}
		if events[len(events)-1].Terminal() {
			return events, nil
		}
		last = &events[len(events)-1].Sequence
	}
}

func followUntil(ctx context.Context, c *apiclient.Client, runID string, n int) ([]apiclient.Event, error) {
	return followFrom(ctx, c, runID, nil, n)
}

// followFrom reads at most n events and goes away.
func followFrom(ctx context.Context, c *apiclient.Client, runID string, last *uint64, n int) (events []apiclient.Event, err error) {
	s, err := c.Stream(ctx, runID, last)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // the server is to find out by itself
	for len(events) < n {
		e, err := s.NextEvent()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// A client that has all there is gets the end at once, not a stream that waits
// for what will never come.
func TestAReaderBehindTheEndIsToldThatItIsOver(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	r := w.talk().tell(t, ">>say short")
	for _, cursor := range []uint64{r.last().Sequence, r.last().Sequence + 1, 1 << 40} {
		ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
		s, err := w.user.Stream(ctx, r.RunID, &cursor)
		if err == nil {
			var events []apiclient.Event
			events, err = s.Rest()
			err = errors.Join(err, s.Close())
			if len(events) > 0 {
				t.Errorf("after %d: %d events", cursor, len(events))
			}
		}
		if err != nil {
			t.Errorf("after %d: %v", cursor, err)
		}
		page, err := w.user.Events(ctx, r.RunID, &cursor, 10)
		if err != nil || len(page.Events) > 0 || !page.Ended {
			t.Errorf("page after %d: %+v, %v", cursor, page, err)
		}
		cancel()
	}
}

// An AG-UI stream begins at RUN_STARTED wherever a client left off, and only the
// last frame of an event has an id.
func TestTheAGUIStreamOfARunCanBeReadAgain(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	name, _ := w.sample(t)
	r := w.talk().tell(t, read(name))
	frames := aguiFrames(t, w, r.RunID, nil)
	if first, last := aguiType(t, frames[0]), aguiType(t, frames[len(frames)-1]); first != "RUN_STARTED" || last != "RUN_FINISHED" {
		t.Fatalf("from %s to %s", first, last)
	}
	var ids []uint64
	for _, f := range frames {
		if f.ID != nil {
			ids = append(ids, *f.ID)
		}
	}
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			t.Errorf("ids %v", ids)
		}
	}
	middle := ids[len(ids)/2]
	again := aguiFrames(t, w, r.RunID, &middle)
	if aguiType(t, again[0]) != "RUN_STARTED" || again[1].ID == nil && aguiType(t, again[1]) == "RUN_STARTED" {
		t.Errorf("resumed with %s", again[0].Data)
	}
	for _, f := range again[1:] {
		if f.ID != nil && *f.ID <= middle {
			t.Errorf("frame %d again after %d", *f.ID, middle)
		}
	}
	if n := len(again) - 1; n == 0 || string(again[n].Data) != string(frames[len(frames)-1].Data) {
		t.Errorf("%d frames, the last is %s", len(again), again[n].Data)
	}
}

func aguiFrames(t *testing.T, w *world, runID string, last *uint64) []apiclient.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	s, err := w.user.OpenStream(ctx, runID, "agui", last)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // it was read
	var frames []apiclient.Frame
	for {
		f, err := s.Next()
		if errors.Is(err, io.EOF) {
			if len(frames) == 0 {
				t.Fatal("no frame")
			}
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
}

func aguiType(t *testing.T, f apiclient.Frame) string {
	t.Helper()
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(f.Data, &head); err != nil {
		t.Fatal(err)
	}
	return head.Type
}
