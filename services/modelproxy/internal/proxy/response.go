package proxy

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"cofferdam.dev/pkg/fault"
)

// response is what the caller gets. It has a header of its own: none of an
// upstream's is passed on.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration

	begun  bool // whether a status was sent
	ended  bool // whether the terminal was
	usage  usage
	frames int
	bytes  int64
}

func newResponse(w http.ResponseWriter, l Limits) *response {
	return &response{w: w, control: http.NewResponseController(w), timeout: l.WriteTimeout}
}

func (r *response) begin(media string) {
	if r.begun {
		return
	}
	r.begun = true
	h := r.w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	r.w.WriteHeader(http.StatusOK)
}

// event sends one event. It waits for the caller, but not for ever: a caller
// that does not read must not hold an upstream's answer here.
func (r *response) event(name string, data []byte) error {
	r.begin(mediaStream)
	r.frames++
	frame := make([]byte, 0, len(data)+len(name)+32)
	if name != "" {
		frame = append(append(append(frame, "event: "...), name...), '\n')
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		frame = append(append(append(frame, "data: "...), line...), '\n')
	}
	return r.write(append(frame, '\n'))
}

// tell puts the code of a failure that a stream ends in behind the stream, for
// who does not read the wire.
func (r *response) tell(code fault.Code) {
	r.w.Header().Set(http.TrailerPrefix+FaultHeader, string(code))
}

// keepAlive sends a comment once the answer has begun. The upstream's own text
// is not in it.
func (r *response) keepAlive() error {
	if !r.begun {
		return nil
	}
	return r.write([]byte(":\n\n"))
}

func (r *response) whole(data []byte) error {
	r.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	r.begin(mediaJSON)
	return r.write(data)
}

func (r *response) write(data []byte) error {
	// A writer without deadlines is one of a test.
	_ = r.control.SetWriteDeadline(time.Now().Add(r.timeout))
	n, err := r.w.Write(data)
	r.bytes += int64(n)
	if err == nil {
		err = r.control.Flush()
	}
	if err != nil {
		return writeFailure(err)
	}
	_ = r.control.SetWriteDeadline(time.Time{})
	return nil
}
