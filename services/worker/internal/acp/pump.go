package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"cofferdam.dev/pkg/fault"
)

// Bounds of what an agent may write.
const (
	// maxLine is one message, in bytes: large results of tools travel in one line.
	maxLine = 10<<20 - 4<<10
	// maxOutput is all that it may write between its start and its end, in bytes, and
	// maxLines in messages.
	maxOutput = 1 << 30
	maxLines  = 2_000_000
	// maxRequests of the agent may be unanswered.
	maxRequests = 96
)

var (
	errGarbage = errors.New("the agent wrote something that is no message")
	errFlood   = errors.New("the agent wrote more than it may")
	errLong    = errors.New("the agent wrote a longer line than it may")
)

// envelope is a message of JSON-RPC, in either direction.
type envelope struct {
	JSONRPC string           `json:"jsonrpc"`
	ID      *json.RawMessage `json:"id,omitempty"`
	Method  string           `json:"method,omitempty"`
	Params  json.RawMessage  `json:"params,omitempty"`
	Result  json.RawMessage  `json:"result,omitempty"`
	Error   json.RawMessage  `json:"error,omitempty"`
}

// listener takes what an agent tells, in the order in which it does.
type listener interface {
	update(session string, u update) error
	asking(session string, r report) error
}

// pump stands between the agent's output and the SDK's connection. Updates are
// taken here, one after the other, so that a reader that holds the stream back
// holds the agent back, and so that what came before an answer is done before it.
// The rest goes on, written anew: what was judged is what is read.
type pump struct {
	from     io.Reader
	to       *io.PipeWriter
	listener listener
	// flow is held while a line is handled, and by whoever wants none to be.
	flow chan struct{}
	// open has a place for each request of the agent that is not answered.
	open chan struct{}
	// end is closed when nobody wants to hear the agent any more.
	end chan struct{}
}

// run reads to the end. nil is the end of the output.
func (p *pump) run() error {
	s := bufio.NewScanner(p.from)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	lines, size := 0, 0
	for s.Scan() {
		lines, size = lines+1, size+len(s.Bytes())
		if lines > maxLines || size > maxOutput {
			return broke(errFlood)
		}
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		select {
		case p.flow <- struct{}{}:
		case <-p.end:
			return nil
		}
		err := p.line(s.Bytes())
		<-p.flow
		if err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return broke(errLong)
	}
	return nil // a broken pipe is the end of the program
}

func broke(err error) error { return fault.Wrap(err, fault.Protocol, "acp.pump") }

func (p *pump) line(line []byte) error {
	var m envelope
	if json.Unmarshal(line, &m) != nil {
		return broke(errGarbage)
	}
	if m.ID != nil && string(*m.ID) == "null" {
		m.ID = nil
	}
	switch {
	case m.Method == "session/update" && m.ID == nil:
		session, u, err := decodeUpdate(m.Params)
		if err != nil {
			return broke(err)
		}
		return p.listener.update(session, u)
	case m.Method == "$/cancel_request" && m.ID == nil:
		return p.pass(m)
	case m.Method != "" && m.ID == nil:
		return nil // an extension's notification
	case m.Method == "session/request_permission":
		session, r, err := decodePermission(m.Params)
		if err != nil {
			return broke(err)
		}
		if err := p.listener.asking(session, r); err != nil {
			return err
		}
		return p.request(m)
	case m.Method != "":
		return p.request(m)
	case m.ID != nil && (len(m.Result) > 0 || len(m.Error) > 0):
		return p.pass(m)
	default:
		return broke(errGarbage)
	}
}

// request passes a request on once there is a place for it.
func (p *pump) request(m envelope) error {
	select {
	case p.open <- struct{}{}:
		return p.pass(m)
	case <-p.end:
		return nil
	}
}

func (p *pump) pass(m envelope) error {
	m.JSONRPC = "2.0"
	var b bytes.Buffer
	e := json.NewEncoder(&b) // ends the line
	e.SetEscapeHTML(false)
	if e.Encode(m) != nil {
		return broke(errGarbage)
	}
	if _, err := p.to.Write(b.Bytes()); err != nil {
		return nil //nolint:nilerr // the connection has ended, which is told otherwise
	}
	return nil
}

// answers is the agent's input. It gives the place of each answered request back.
type answers struct {
	io.Writer

	open chan struct{}
}

// Write takes one message, as the SDK writes them.
func (a answers) Write(b []byte) (int, error) {
	var m struct {
		Method string `json:"method"`
	}
	if json.Unmarshal(b, &m) == nil && m.Method == "" {
		select {
		case <-a.open:
		default: // answers to what was not counted
		}
	}
	return a.Writer.Write(b)
}
