package mcpstdio

import (
	"os"
	"sync"
	"time"
)

// input is the standard input of a server. A server that does not read would
// block its writer for ever, whatever the context of the call says.
type input struct {
	file   *os.File
	broken func()
}

// Write writes within its bound, or ends the server: half a message cannot be
// taken back.
func (w *input) Write(p []byte) (int, error) {
	err := w.file.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err != nil {
		return 0, err
	}
	n, err := w.file.Write(p)
	if err != nil {
		w.broken()
	}
	return n, err
}

func (w *input) Close() error { return w.file.Close() }

// tail keeps the end of what is written to it.
type tail struct {
	most int

	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p[max(0, len(p)-t.most):]...)
	if over := len(t.end) - t.most; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}
