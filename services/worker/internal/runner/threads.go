//go:build linux

package runner

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads are made before there is a program: more than
// there are calls that a worker makes at once, each of which may be in a system call.
const spareThreads = 16

// reserveThreads has the Go runtime make threads now, and keep them. The program
// counts for the same limit of processes, and a program that forks without end takes
// all that there are. A runner that needed another thread then would get none, which
// ends it, and with it the world in which it should say what happened.
func reserveThreads(n int) {
	var made, all sync.WaitGroup
	enough := make(chan struct{})
	made.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread() // a thread of its own for each
			defer runtime.UnlockOSThread()
			made.Done()
			<-enough
		})
	}
	made.Wait()
	close(enough)
	all.Wait()
}
