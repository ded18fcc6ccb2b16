package loopback

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/klauspost/compress/zstd"
)

var (
	errEncoding = errors.New("unknown content encoding")
	errTooLarge = errors.New("too large")
)

// readBody reads a request's body, which some programs compress.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a writer without deadlines is one of a test
	defer func() {
		if r.Context().Err() == nil { // else the end of the run has set another
			_ = control.SetReadDeadline(time.Time{})
		}
	}()
	raw := http.MaxBytesReader(w, r.Body, MaxModelRequest)
	plain, err := decoded(raw, r.Header.Get("Content-Encoding"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(plain, MaxModelRequest+1))
	switch _, large := errors.AsType[*http.MaxBytesError](err); {
	case large, err == nil && len(data) > MaxModelRequest:
		return nil, errTooLarge
	case err != nil:
		return nil, err
	}
	return data, nil
}

// decoded undoes the encoding of a body. Its memory is bounded.
func decoded(r io.ReadCloser, encoding string) (io.ReadCloser, error) {
	switch encoding {
	case "", "identity":
		return r, nil
	case "gzip":
		return gzip.NewReader(r)
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(MaxModelRequest))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	default:
		return nil, errEncoding
	}
}

// offered counts the tools that a request offers to the model. A body that is
// none of its wire offers nothing; the proxy refuses it.
func offered(body []byte) int {
	var req struct {
		Tools []struct {
			// Gemini has one tool with all declarations in it.
			Functions      []json.RawMessage `json:"functionDeclarations"`
			FunctionsSnake []json.RawMessage `json:"function_declarations"`
		} `json:"tools"`
	}
	if json.NewDecoder(bytes.NewReader(body)).Decode(&req) != nil {
		return 0
	}
	n := 0
	for _, t := range req.Tools {
		n += max(1, len(t.Functions)+len(t.FunctionsSnake))
	}
	return n
}
