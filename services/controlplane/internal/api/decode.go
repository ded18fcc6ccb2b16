package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// idRule is that of event.ValidID.
const idRule = "1 to 128 characters of [A-Za-z0-9._:-]"

// decode reads a request's body as one strict JSON value of the shape of v.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	raw, err := body(w, r)
	if err != nil {
		return err
	}
	return badJSON(strictjson.Unmarshal(raw, v, strictjson.Options{MaxBytes: MaxBodyBytes}))
}

// body reads a request's body within its bounds of size and time.
func body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, fault.New(fault.InvalidRequest, "api.body", fault.Detail("Content-Type: application/json"))
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fault.Wrap(err, fault.Internal, "api.body")
	}
	raw, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fault.Wrap(err, fault.RequestTooLarge, "api.body", fault.Detail("body: at most "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes"))
	case err != nil:
		return nil, fault.Wrap(err, fault.InvalidRequest, "api.body", fault.Detail("body: did not arrive whole"))
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fault.Wrap(err, fault.Internal, "api.body")
	}
	return raw, nil
}

// badJSON names what is wrong with a document by its place, never its value.
func badJSON(err error) error {
	var se *strictjson.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &se) && se.Kind == strictjson.KindSize:
		return fault.Wrap(err, fault.RequestTooLarge, "api.decode", fault.Detail(where(se)))
	case errors.As(err, &se):
		return fault.Wrap(err, fault.InvalidRequest, "api.decode", fault.Detail(where(se)))
	default:
		return fault.Wrap(err, fault.Internal, "api.decode")
	}
}

// where is a place in the body and what is wrong there.
func where(e *strictjson.Error) string {
	if e.Path == "" {
		return "body: " + string(e.Kind)
	}
	return "body: " + e.Path + ": " + string(e.Kind)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "api.writeJSON")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	boundWrite(w)
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // a client that has gone needs no answer
	return nil
}

// parameter reads a parameter of the query. there is false if it is not given;
// what is given twice or cannot be read is refused, since readers differ in what
// they make of it.
func parameter(r *http.Request, name string) (value string, there bool, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", false, fault.Wrap(err, fault.InvalidRequest, "api.parameter", fault.Detail("query: not well formed"))
	}
	switch values := q[name]; len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	default:
		return "", false, fault.New(fault.InvalidRequest, "api.parameter", fault.Detail(name+": given more than once"))
	}
}

// number reads an integer of the query, or gives def.
func number(r *http.Request, name string, def, least, most uint64) (uint64, error) {
	s, there, err := parameter(r, name)
	if err != nil || !there {
		return def, err
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n < least || n > most {
		return 0, fault.New(fault.InvalidRequest, "api.number",
			fault.Detail(name+": an integer from "+strconv.FormatUint(least, 10)+" to "+strconv.FormatUint(most, 10)))
	}
	return n, nil
}

// pageLimit is how many entries of a list are wanted.
func pageLimit(r *http.Request) (int, error) {
	n, err := number(r, "limit", defaultPage, 1, maxPage)
	return int(n), err //nolint:gosec // at most maxPage
}

// boundWrite bounds the answer that is about to be written.
func boundWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without deadlines is one of a test
}

// boundRest bounds what is left of a body that nobody will read.
func boundRest(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTimeout)) // a writer without deadlines is one of a test
}
