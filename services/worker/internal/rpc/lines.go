package rpc

import (
	"encoding/json"
	"io"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// line is one line of the stream: the envelope, which every event carries, and
// one canonical event.
type line struct {
	Envelope      json.RawMessage `json:"envelope"`
	CapabilityJTI string          `json:"capability_jti"`
	BootNonce     string          `json:"boot_nonce"`
	Event         event.Event     `json:"event"`
}

// lineWriter writes a run as newline-delimited JSON.
type lineWriter struct {
	out     *json.Encoder
	control *http.ResponseController
}

func newLineWriter(w http.ResponseWriter) *lineWriter {
	out := json.NewEncoder(io.Writer(w))
	out.SetEscapeHTML(false)
	return &lineWriter{out, http.NewResponseController(w)}
}

func (l *lineWriter) write(f *frame) error {
	env, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(f.env.Proto())
	if err != nil {
		return fault.Wrap(err, fault.Internal, "rpc.write")
	}
	for _, e := range f.events {
		if err := l.out.Encode(line{env, f.authority.CapabilityID, f.authority.BootNonce, e}); err != nil {
			return fault.Wrap(err, fault.Cancelled, "rpc.write")
		}
	}
	if err := l.control.Flush(); err != nil {
		return fault.Wrap(err, fault.Cancelled, "rpc.write")
	}
	return nil
}
