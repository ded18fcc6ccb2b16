package demomodel

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// maxRequest bounds a request body, in bytes, before and after it is inflated.
const maxRequest = 4 << 20

// refusal is why a body is not taken.
type refusal struct {
	status  int
	message string
}

// readBody reads a body and inflates it where it says that it is gzip.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	tooLarge := &refusal{http.StatusRequestEntityTooLarge, "The request is larger than 4 MiB."}
	var src io.Reader = http.MaxBytesReader(w, r.Body, maxRequest)
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		inflate, err := gzip.NewReader(src)
		if err != nil {
			return nil, &refusal{http.StatusBadRequest, "The request is not gzip."}
		}
		src = inflate
	default:
		return nil, &refusal{http.StatusUnsupportedMediaType, "Send the request without compression, or with gzip."}
	}
	data, err := io.ReadAll(io.LimitReader(src, maxRequest+1))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok || len(data) > maxRequest {
		return nil, tooLarge
	}
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "The request could not be read."}
	}
	return data, nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // strings and numbers always marshal
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no answer
}
