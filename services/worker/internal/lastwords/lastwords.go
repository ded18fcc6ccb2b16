//go:build linux

// Package lastwords has a worker in a pod say why it ended where nothing else would tell.
//
// The kubelet bounds how many processes and threads a pod may have, and no status of a pod
// says that it had too many: the Go runtime, refused a thread, ends the process with the
// exit code of any crash. From within that process nothing more can be done by then, since
// the runtime lets no goroutine run on. So a witness, a small process of its own that was
// started in time, reads the trace of the crash and writes the cause to where Kubernetes
// looks for the last words of a container.
package lastwords

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/witness"
)

// pipeSize is the smallest there is, in bytes.
const pipeSize = 4 << 10

// Leave starts a witness of this process, who writes to the file log. The witness is the
// runner, whose binary lies beside this one, and ends with this process. It is never
// waited for: the worker reaps what has ended.
func Leave(log string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("last words: %w", err)
	}
	out, err := os.OpenFile(log, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("last words: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("last words: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close(), w.Close()) }() // both have copies by then
	// What does not fit waits for the witness, and with it the end of this process, which
	// is that of the witness too where this one is process 1. A trace is longer than that.
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, pipeSize); err != nil { // Fd makes it one that blocks, as it has to be
		return fmt.Errorf("last words: %w", err)
	}
	if err := debug.SetCrashOutput(w, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("last words: %w", err)
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(self), "runner"), witness.Argument) //nolint:noctx,gosec // our own, and it ends with this process
	cmd.Stdin, cmd.Stdout = r, out
	cmd.Env = []string{"GOMAXPROCS=1"}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("last words: %w", err)
	}
	return cmd.Process.Release()
}
