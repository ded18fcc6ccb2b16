package apiclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxLine bounds one line of a stream: an event, the names of its field, and some
// room.
const maxLine = 512 << 10

// Frame is one server-sent event.
type Frame struct {
	// ID is nil where the frame has none.
	ID    *uint64
	Event string
	Data  json.RawMessage
}

// Stream is an open stream of frames.
type Stream struct {
	body io.ReadCloser
	scan *bufio.Scanner
}

// Stream opens the canonical stream of a run. lastEventID, where it is not nil,
// is sent as the header of a client that comes back. ctx ends the stream.
func (c *Client) Stream(ctx context.Context, runID string, lastEventID *uint64) (*Stream, error) {
	return c.OpenStream(ctx, runID, "", lastEventID)
}

// OpenStream is Stream for any protocol; "" leaves it to the server.
func (c *Client) OpenStream(ctx context.Context, runID, protocol string, lastEventID *uint64) (*Stream, error) {
	path := c.base + "/api/v1/runs/" + url.PathEscape(runID) + "/stream"
	if protocol != "" {
		path += "?protocol=" + url.QueryEscape(protocol)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastEventID != nil {
		req.Header.Set("Last-Event-ID", strconv.FormatUint(*lastEventID, 10))
	}
	res, err := c.send(req)
	if err != nil {
		return nil, err
	}
	if t := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || t != "text/event-stream" {
		raw, readErr := io.ReadAll(io.LimitReader(res.Body, maxLine))
		if err := errors.Join(readErr, res.Body.Close()); err != nil {
			return nil, err
		}
		if err := (Answer{Status: res.StatusCode, Body: raw}).Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("status %d, Content-Type %q", res.StatusCode, t)
	}
	s := &Stream{body: res.Body, scan: bufio.NewScanner(res.Body)}
	s.scan.Buffer(make([]byte, 0, 64<<10), maxLine)
	// Not ScanLines, which would hide a CR.
	s.scan.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return 0, nil, io.ErrUnexpectedEOF
		}
		return 0, nil, nil
	})
	return s, nil
}

// Close ends the stream.
func (s *Stream) Close() error { return s.body.Close() }

// Next gives the next frame, and io.EOF once the server has ended the stream
// between two frames. A stream that was cut off is another error.
func (s *Stream) Next() (Frame, error) {
	var f Frame
	begun := false
	for s.scan.Scan() {
		line := s.scan.Text()
		switch {
		case strings.ContainsRune(line, '\r'):
			return f, fmt.Errorf("a frame with a CR: %.100q", line)
		case line == "" && begun:
			return f, nil
		case line == "" || line[0] == ':':
			continue
		}
		begun = true
		if err := f.take(line); err != nil {
			return f, err
		}
	}
	if err := s.scan.Err(); err != nil {
		return f, err
	}
	if begun {
		return f, io.ErrUnexpectedEOF
	}
	return f, io.EOF
}

func (f *Frame) take(line string) error {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || f.ID != nil {
			return fmt.Errorf("frame with the id %.40q", value)
		}
		f.ID = &n
	case "event":
		f.Event = value
	case "data":
		if f.Data != nil || !json.Valid([]byte(value)) {
			return fmt.Errorf("frame with the data %.100q", value)
		}
		f.Data = json.RawMessage(value)
	default:
		return fmt.Errorf("frame with the field %.40q", name)
	}
	return nil
}

// NextEvent gives the next frame of a canonical stream as an event, after it has
// seen that id and name say the same.
func (s *Stream) NextEvent() (Event, error) {
	f, err := s.Next()
	if err != nil {
		return Event{}, err
	}
	var e Event
	if err := json.Unmarshal(f.Data, &e); err != nil {
		return e, err
	}
	if f.ID == nil || *f.ID != e.Sequence || f.Event != e.Type {
		return e, fmt.Errorf("a frame %q of event %d %q", f.Event, e.Sequence, e.Type)
	}
	return e, nil
}

// Terminal reports whether the event ends its run.
func (e Event) Terminal() bool {
	switch e.Type {
	case "run.finished", "run.interrupted", "run.cancelled", "run.error":
		return true
	}
	return false
}

// Follow reads a run's canonical stream from its beginning to its end.
func (c *Client) Follow(ctx context.Context, runID string) ([]Event, error) {
	s, err := c.Stream(ctx, runID, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // it was read
	return s.Rest()
}

// Rest reads a canonical stream to its end.
func (s *Stream) Rest() ([]Event, error) {
	var events []Event
	for {
		e, err := s.NextEvent()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

// Sees waits until the log of a run has an event of a type. A run that ends before is
// an error.
func (c *Client) Sees(ctx context.Context, runID, typ string) error {
	s, err := c.Stream(ctx, runID, nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // nothing is left to read
	for {
		e, err := s.NextEvent()
		switch {
		case err != nil:
			return fmt.Errorf("waiting for %s: %w", typ, err)
		case e.Type == typ:
			return nil
		case e.Terminal():
			return fmt.Errorf("waiting for %s: the run ended: %s", typ, e.Raw)
		}
	}
}
