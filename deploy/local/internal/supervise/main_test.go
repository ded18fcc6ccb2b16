package supervise

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperArg makes the test binary one of the programs below.
const helperArg = "supervise-test-helper"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperArg {
		os.Exit(helper(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

func helper(mode string) int {
	switch mode {
	case "serve": // tells its process id to whoever connects to descriptor 3
		return serve()
	case "patient":
		<-time.After(time.Minute) // ends a helper that a failing test forgot
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		return serve()
	case "refuse":
		return 7
	}
	return 0
}

func serve() int {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return 1
	}
	time.AfterFunc(time.Minute, func() { os.Exit(1) })
	for {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		w := bufio.NewWriter(conn)
		_, _ = fmt.Fprintln(w, os.Getpid())
		_ = w.Flush()
		_ = conn.Close()
	}
}
