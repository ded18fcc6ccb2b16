package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// maxDepth bounds how deep a request nests; tool schemas are the deepest part.
const maxDepth = 128

// request is a body that was read, by its fields.
type request struct {
	fields object
	stream bool
}

// readRequest reads and decodes a body. Two readers must not find different
// models in it, so doubled keys are refused at any depth.
func readRequest(w http.ResponseWriter, r *http.Request, l Limits) (*request, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, invalid("Content-Type: application/json")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, invalid("Content-Encoding: none")
	}
	data, err := readBody(w, r, l)
	if err != nil {
		return nil, err
	}
	options := strictjson.Options{MaxBytes: l.MaxRequest, MaxDepth: maxDepth, AllowControls: true, AllowCaseVariants: true}
	if err := strictjson.Check(data, options); err != nil {
		return nil, refused(err)
	}
	req := &request{}
	if err := json.Unmarshal(data, &req.fields); err != nil || req.fields == nil {
		return nil, invalid("body: a JSON object")
	}
	return req, nil
}

func readBody(w http.ResponseWriter, r *http.Request, l Limits) ([]byte, error) {
	control := http.NewResponseController(w)
	// A writer without deadlines is one of a test; the body is bounded anyway.
	_ = control.SetReadDeadline(time.Now().Add(l.ReadTimeout))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(l.MaxRequest)))
	_ = control.SetReadDeadline(time.Time{})
	if err == nil {
		return data, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fault.New(fault.RequestTooLarge, "proxy.request")
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.DeadlineExceeded, "proxy.request")
	default:
		return nil, fault.New(fault.Cancelled, "proxy.request")
	}
}

// encode is the body for the upstream, with its own name of the model.
func (r *request) encode(model string) ([]byte, error) {
	name, err := json.Marshal(model)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "proxy.encode")
	}
	r.fields["model"] = name
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r.fields); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "proxy.encode")
	}
	return b.Bytes(), nil
}

// invalid is invalid_request with a field and the rule that it breaks.
func invalid(detail string) error {
	return fault.New(fault.InvalidRequest, "proxy.request", fault.Detail(detail))
}

// refused says which rule of JSON a body breaks, and where.
func refused(err error) error {
	e, ok := errors.AsType[*strictjson.Error](err)
	if !ok {
		return fault.Wrap(err, fault.Internal, "proxy.request")
	}
	if e.Kind == strictjson.KindSize {
		return fault.New(fault.RequestTooLarge, "proxy.request")
	}
	return invalid("body" + e.Path + ": " + string(e.Kind))
}
