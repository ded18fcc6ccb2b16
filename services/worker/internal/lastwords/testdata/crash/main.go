//go:build linux

// Command crash is a worker that ends in the way its first argument says, and leaves its
// last words in the file that is the second. What lies beside it as runner is the witness.
package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/lastwords"
	"cofferdam.dev/services/worker/internal/witness"
)

// nobody is a user who runs nothing else: the kernel counts what a user has in all.
const nobody = 64321

func main() {
	if os.Args[1] == witness.Argument {
		must(witness.Hear(os.Stdin, os.Stdout))
		return
	}
	must(lastwords.Leave(os.Args[2]))
	switch os.Args[1] {
	case "threads":
		must(unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 64, Max: 64}))
		if os.Getuid() == 0 { // whom no such limit holds
			must(unix.Setresuid(nobody, nobody, nobody))
		}
		end := make(chan struct{})
		for range 1000 {
			go func() {
				runtime.LockOSThread()
				<-end
			}()
		}
		<-end
	case "panic":
		panic("out of something else")
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
