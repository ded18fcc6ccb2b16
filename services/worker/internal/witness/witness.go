// Package witness is the other half of package lastwords: what the runner does when it is
// started to hear why its worker ended. It links no more than the runner may.
package witness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
)

const (
	// PIDs are the words of a worker that was refused a thread. The control plane reads
	// them in the status of the pod.
	PIDs = "limit pids"
	// Argument is what makes the runner a witness.
	Argument = "-witness"

	// refused is the function in which the runtime gives up, in its trace of that.
	refused = "runtime.newosproc"
	// headSize of a trace is looked at: the function stands near its beginning.
	headSize = 16 << 10
)

// Hear is the witness: it reads a trace to its end, and writes the cause as soon as it knows
// one. By then no process can be made any more, and it needs none: its only thread waits in
// the kernel.
func Hear(trace io.Reader, log io.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := make([]byte, 0, headSize)
	for len(head) < cap(head) {
		n, err := trace.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if bytes.Contains(head, []byte(refused)) {
			if _, err := io.WriteString(log, PIDs); err != nil {
				return fmt.Errorf("last words: %w", err)
			}
			break
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("last words: %w", err)
		}
	}
	_, err := io.Copy(io.Discard, trace)
	return err
}
