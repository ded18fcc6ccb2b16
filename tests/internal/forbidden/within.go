package forbidden

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// Within runs do in the network of a process, as root. The thread that it does so on
// ends with it; that must not be the first one of a program, which cannot end, so the
// main goroutine has to keep that to itself by locking it in an init function. What do
// starts as another goroutine is not in that network.
func Within(pid int, do func() error) error {
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer func() { _ = network.Close() }() // only read
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if _, _, errno := syscall.RawSyscall(sysSetns, network.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
			done <- fmt.Errorf("enter the network of process %d: %w", pid, errno)
			return
		}
		done <- do()
	}()
	return <-done
}
