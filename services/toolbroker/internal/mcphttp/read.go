package mcphttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// Bounds of an answer.
const (
	// maxMessage bounds one message, in bytes.
	maxMessage = 16 << 20
	// maxRefusal bounds the body of a response that refuses, in bytes.
	maxRefusal = 64 << 10
	// maxStream bounds what comes before an answer in its stream, in bytes.
	maxStream = 48 << 20
	// maxAsked bounds how many requests of the server's are answered in a stream.
	maxAsked = 16
	// codeHTTP stands for a refusal by HTTP alone.
	codeHTTP = -32099
)

// Reasons that say nothing of what the server sent.
var (
	errTooLarge = &mcpcall.LoggableError{Reason: "the answer is too large"}
	errForm     = &mcpcall.LoggableError{Reason: "the answer is in no form of the protocol"}
	errCut      = &mcpcall.LoggableError{Reason: "the answer broke off"}
)

// read reads the answer to a request out of the response.
//
// A request that HTTP refused (4xx) has an answer: the server did not do what was
// asked. What a gateway says that waited in vain (5xx, 408) is none, nor is a
// redirect.
func (t *tap) read(ctx context.Context, x *mcpcall.Exchange, res *http.Response, id jsonrpc.ID) (*jsonrpc.Response, error) {
	switch {
	case res.StatusCode/100 == 4 && res.StatusCode != http.StatusRequestTimeout:
		return refusal(res, id), nil
	case res.StatusCode != http.StatusOK:
		return nil, &mcpcall.LoggableError{Reason: fmt.Sprintf("the server answered HTTP %d", res.StatusCode)}
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return nil, errForm
	}
	switch kind {
	case "application/json":
		raw, err := readAll(res.Body, maxMessage)
		if err != nil {
			return nil, err
		}
		if answer, ok := responseTo(raw, id); ok {
			return answer, nil
		}
		return nil, errForm
	case "text/event-stream":
		return t.stream(ctx, x, res.Body, id)
	default:
		return nil, errForm
	}
}

// refusal is the error of a response with a status of 4xx, in the server's words
// where it has any.
func refusal(res *http.Response, id jsonrpc.ID) *jsonrpc.Response {
	if raw, err := readAll(res.Body, maxRefusal); err == nil {
		if msg, err := jsonrpc.DecodeMessage(raw); err == nil {
			if r, ok := msg.(*jsonrpc.Response); ok && r.Error != nil {
				return &jsonrpc.Response{ID: id, Error: r.Error}
			}
		}
	}
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeHTTP, Message: fmt.Sprintf("the request was refused: HTTP %d", res.StatusCode)}}
}

func readAll(r io.Reader, most int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, errCut
	case int64(len(raw)) > most:
		return nil, errTooLarge
	}
	return raw, nil
}

// responseTo gives the message if it is the response to the request.
func responseTo(raw []byte, id jsonrpc.ID) (*jsonrpc.Response, bool) {
	msg, err := jsonrpc.DecodeMessage(raw)
	if err != nil {
		return nil, false
	}
	r, ok := msg.(*jsonrpc.Response)
	return r, ok && r.ID == id
}

// stream reads events until the answer. What the server asks meanwhile it asks
// in the midst of x. One that is malformed ends it: what was
// meant nobody knows.
func (t *tap) stream(ctx context.Context, x *mcpcall.Exchange, r io.Reader, id jsonrpc.ID) (*jsonrpc.Response, error) {
	events := newEvents(r, maxStream)
	asked := 0
	for {
		data, err := events.next()
		if err != nil {
			return nil, err
		}
		msg, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			return nil, errForm
		}
		switch m := msg.(type) {
		case *jsonrpc.Response:
			if m.ID == id {
				return m, nil
			}
		case *jsonrpc.Request:
			if !m.IsCall() {
				mcpcall.Notified(m, t.changed)
				if x != nil {
					x.Progressed(m)
				}
				continue
			}
			if asked++; asked > maxAsked {
				return nil, &mcpcall.LoggableError{Reason: "the server asks too much"}
			}
			t.reply(ctx, x, m)
		}
	}
}

// events reads the data of server-sent events.
type events struct {
	r    *bufio.Reader
	left int64
}

func newEvents(r io.Reader, most int64) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), left: most}
}

// next gives the data of the next message event that has any: an empty one only
// tells where to resume. Ids and times to
// reconnect are of no use here: nothing is resumed.
func (e *events) next() ([]byte, error) {
	var data []byte
	named := ""
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if len(data) > 1 && (named == "" || named == "message") {
				return data[:len(data)-1], nil
			}
			data, named = nil, ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if len(data)+len(value) > maxMessage {
				return nil, errTooLarge
			}
			data = append(append(data, value...), '\n')
		case "event":
			named = string(value[:min(len(value), 64)])
		}
	}
}

// line reads a line of at most maxMessage bytes, without its end.
func (e *events) line() ([]byte, error) {
	var line []byte
	for {
		part, err := e.r.ReadSlice('\n')
		if e.left -= int64(len(part)); e.left < 0 || len(line)+len(part) > maxMessage+64 {
			return nil, errTooLarge
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, errCut
		}
	}
}
