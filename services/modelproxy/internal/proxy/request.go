package proxy

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
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
	to     route
	fields object
	stream bool
	// model is the name that the caller asks for. It decides nothing but whether
	// the call is one on the side.
	model string
	// header and query are what goes on beside the body.
	header http.Header
	query  string
}

// readRequest reads and decodes a body. Two readers must not find different
// things in it, so doubled keys are refused at any depth.
func readRequest(w http.ResponseWriter, r *http.Request, to route, l Limits) (*request, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, invalid("Content-Type: application/json")
	}
	req := &request{to: to, model: to.model, stream: to.stream}
	var err error
	if req.query, err = to.query(r.URL.Query()); err != nil {
		return nil, err
	}
	if req.header, err = passedHeader(to, r.Header); err != nil {
		return nil, err
	}
	data, err := readBody(w, r, l)
	if err != nil {
		return nil, err
	}
	options := strictjson.Options{MaxBytes: l.MaxRequest, MaxDepth: maxDepth, AllowControls: true, AllowCaseVariants: true}
	if err := strictjson.Check(data, options); err != nil {
		return nil, refused(err)
	}
	if err := json.Unmarshal(data, &req.fields); err != nil || req.fields == nil {
		return nil, invalid("body: a JSON object")
	}
	return req, nil
}

// readBody reads a body, and inflates it where it says that it is gzip. No
// other encoding is taken: what is passed on was looked at first.
func readBody(w http.ResponseWriter, r *http.Request, l Limits) ([]byte, error) {
	control := http.NewResponseController(w)
	// A writer without deadlines is one of a test; the body is bounded anyway.
	_ = control.SetReadDeadline(time.Now().Add(l.ReadTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	inflated := false
	var src io.Reader = http.MaxBytesReader(w, r.Body, int64(l.MaxRequest))
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		inflate, err := gzip.NewReader(src)
		if err != nil {
			return nil, bodyFailure(err, true)
		}
		src, inflated = inflate, true
	default:
		return nil, invalid("Content-Encoding: none, or gzip")
	}
	// What inflates to more is refused as too large when it is decoded.
	data, err := io.ReadAll(io.LimitReader(src, int64(l.MaxRequest)+1))
	if err != nil {
		return nil, bodyFailure(err, inflated)
	}
	return data, nil
}

func bodyFailure(err error, inflated bool) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.New(fault.RequestTooLarge, "proxy.request")
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.DeadlineExceeded, "proxy.request")
	case inflated && isCorrupt(err):
		return invalid("body: gzip, as its Content-Encoding says")
	default:
		return fault.New(fault.Cancelled, "proxy.request")
	}
}

// isCorrupt reports whether err is of a stream that is no gzip.
func isCorrupt(err error) bool {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	return corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// encode is the body for the upstream, with its own name of the model.
func (r *request) encode(model string) ([]byte, error) {
	if r.to.wire != Gemini { // there it stands in the path
		name, err := json.Marshal(model)
		if err != nil {
			return nil, fault.Wrap(err, fault.Internal, "proxy.encode")
		}
		r.fields["model"] = name
	}
	data, err := encode(r.fields)
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// encode writes JSON as it was, without escapes for HTML.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "proxy.encode")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
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
