package escape

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// victim is a neighbour in the middle of a run, and what it must keep for itself.
type victim struct {
	*talk

	run    apiclient.Started
	worker procs.Process
	// canary stands in its message, its memory, and a file of its workspace.
	canary string
}

// victim begins the run. It ends with the test.
func (w *world) victim(t *testing.T) *victim {
	t.Helper()
	v := &victim{talk: w.talk(honest), canary: "canary-" + rand.Text()}
	v.tell(t, "Remember "+v.canary)
	v.run = v.begin(t, ">>say "+v.canary+"\n>>sleep 60000")
	v.sees(t, v.run, "text.delta")
	v.worker = v.talk.worker(t, v.run.BindingID)
	plant(t, v.worker, isolation.WorkerID, "canary", v.canary)
	if found, err := procs.Holds(v.worker.PID, v.canary); err != nil || len(found) == 0 {
		t.Fatalf("the memory of the victim lacks its canary, so that nothing can be shown: %v", err)
	}
	t.Cleanup(func() {
		if _, err := w.user.Cancel(context.WithoutCancel(t.Context()), v.run.RunID); err != nil {
			t.Error(err)
		}
	})
	return v
}

// plant writes a file, that anybody may read, into the workspace of a worker. Only
// a user of the sandbox, here by its id in there, can make files in it.
func plant(t *testing.T, worker procs.Process, id int, name, content string) {
	t.Helper()
	user, err := impostor.UserOf(worker)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(impostor.Inside(worker, "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		for _, call := range []uintptr{syscall.SYS_SETFSGID, syscall.SYS_SETFSUID} {
			_, _, _ = syscall.RawSyscall(call, uintptr(user-isolation.WorkerID+id), 0, 0) // it tells of no error
		}
		fd, err := syscall.Openat(int(folder.Fd()), name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o666)
		if err == nil {
			_, err = syscall.Write(fd, []byte(content))
			err = errors.Join(err, syscall.Close(fd))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("%s of %s: %v", name, worker, err)
	}
}

// root is a path of the victim's world as the host sees it.
func (v *victim) root(elem ...string) string { return impostor.Inside(v.worker, elem...) }
