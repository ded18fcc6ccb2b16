package mcpstdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What became of a request that was not answered.
var (
	// ErrNotSent says that no byte of the request left: whatever it asks for did
	// not begin.
	ErrNotSent = errors.New("mcpstdio: the request was not sent")
	// ErrNoAnswer says that the request left, in part or as a whole, and that its
	// answer did not come: nobody knows what it did.
	ErrNoAnswer = errors.New("mcpstdio: the request was not answered")
)

// Bounds of a list of tools.
const (
	maxPages = 32
	maxTools = 2048
)

// Call calls a tool, whose arguments are one JSON object. The request leaves
// before by or not at all; a zero by is any time. Errors are ErrNotSent or
// ErrNoAnswer with the reason; an error that the server answered is an Answer.
// Call returns when ctx ends, whatever the server does.
func (s *Server) Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time) (Answer, error) {
	return s.do(ctx, &exchange{method: "tools/call", by: by}, func(ctx context.Context) error {
		_, err := s.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		return err
	})
}

// Tools lists what the server says that its tools are, each as it stands in the
// answer, so that one that is malformed spoils no other.
func (s *Server) Tools(ctx context.Context) ([]json.RawMessage, error) {
	var all []json.RawMessage
	cursor := ""
	for range maxPages {
		a, err := s.do(ctx, &exchange{method: "tools/list"}, func(ctx context.Context) error {
			_, err := s.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
			return err
		})
		if err != nil {
			return nil, err
		}
		if a.Error != nil {
			return nil, fmt.Errorf("mcpstdio: list of tools: %w", a.Error)
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(a.Result, &page); err != nil {
			return nil, errors.New("mcpstdio: list of tools: not in the form of the protocol")
		}
		if all = append(all, page.Tools...); len(all) > maxTools {
			return nil, fmt.Errorf("mcpstdio: list of tools: more than %d", maxTools)
		}
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("mcpstdio: list of tools: more than %d pages", maxPages)
}

// do lets the SDK make a request and decides by the tap what became of it. The
// SDK's own error is only the reason: it fails for answers that it cannot decode,
// and it is silent about whether anything left.
func (s *Server) do(ctx context.Context, x *exchange, request func(context.Context) error) (Answer, error) {
	ended := make(chan error, 1)
	if !s.begin(func() { ended <- guarded(context.WithValue(ctx, exchangeKey{}, x), request) }) {
		return Answer{}, fmt.Errorf("%w: the server is closed", ErrNotSent)
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done(): // the SDK may be blocked in a write
		err = ctx.Err()
	}
	answer, answered, sent := x.settle()
	s.tap.forget(x)
	switch {
	case answered:
		return answer, nil
	case sent:
		return Answer{}, reason(ctx, ErrNoAnswer, err)
	default:
		return Answer{}, reason(ctx, ErrNotSent, err)
	}
}

// reason says why as far as it can be logged: the SDK's text may quote what the
// server sent.
func reason(ctx context.Context, what, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", what, ctx.Err())
	case errors.Is(err, errWithdrawn):
		return fmt.Errorf("%w: it was too late", what)
	default:
		return fmt.Errorf("%w: the connection broke", what)
	}
}

// guarded keeps an answer that makes the SDK panic from ending the broker.
func guarded(ctx context.Context, request func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("mcpstdio: the SDK panicked: %v", r)
		}
	}()
	return request(ctx)
}
