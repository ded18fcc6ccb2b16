package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

// codec of the thread state of a preset's agent: one line of JSON, and the
// archive of the session's files.
func codec(p *Preset) harness.Codec {
	return harness.Codec{Name: "cofferdam.acp." + p.Name, Version: 1}
}

const (
	// defaultState bounds a payload where the run's limits do not, in bytes.
	defaultState = 1 << 20
	maxHeader    = 4 << 10
	// maxSession is how long the id of a session may be.
	maxSession = 512
)

// header is what has to be known of an archive.
type header struct {
	// Session is the agent's own id of the conversation.
	Session string `json:"session"`
	// Made is when the session was made, in minutes since 1970.
	Made int64 `json:"made"`
}

// snapshot is a thread state.
type snapshot struct {
	header

	archive []byte
}

func (s snapshot) encode() ([]byte, error) {
	head, err := json.Marshal(s.header)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "acp.state")
	}
	return append(append(head, '\n'), s.archive...), nil
}

func decodeSnapshot(payload []byte) (snapshot, error) {
	head, archive, ok := bytes.Cut(payload, []byte("\n"))
	if !ok {
		return snapshot{}, damaged(errors.New("no header"))
	}
	s := snapshot{archive: archive}
	if err := strictjson.Unmarshal(head, &s.header, strictjson.Options{MaxBytes: maxHeader, RequireFields: true}); err != nil {
		return snapshot{}, damaged(err)
	}
	if s.Session == "" || len(s.Session) > maxSession {
		return snapshot{}, damaged(errors.New("no session"))
	}
	return s, nil
}

func damaged(err error) error {
	return fault.Wrap(fmt.Errorf("thread state: %w", err), fault.PersistenceFailed, "acp.state")
}

func minute(t time.Time) int64 { return t.Unix() / 60 }

// bounded is a buffer that takes at most so many bytes.
type bounded struct {
	bytes.Buffer

	room int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.room {
		return 0, fault.New(fault.StateTooLarge, "acp.state")
	}
	return b.Buffer.Write(p)
}
