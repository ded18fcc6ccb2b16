package mcpstdio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
)

// asBroker is the first argument that makes this test binary a program that runs
// a server, and says which process it is.
const asBroker = "broker-under-test"

func broker() {
	s, err := mcpstdio.Start(context.Background(), mcpstdio.Config{Command: os.Args[2:], ConnectTimeout: 20 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := s.Call(context.Background(), "pid", json.RawMessage(`{}`), never)
	fmt.Printf("%s %v\n", a.Result, err)
	select {}
}

// A server does not outlive the broker, also not one that ignores signals and the
// end of its input, when the broker is killed.
func TestAServerDoesNotOutliveTheBroker(t *testing.T) {
	t.Parallel()
	command := stubborn(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append([]string{asBroker}, command...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := out.Read(line)
	found := regexp.MustCompile(`pid (\d+)\.`).FindSubmatch(line[:n])
	if err != nil || found == nil {
		t.Fatalf("the broker says %q, %v", line[:n], err)
	}
	pid, err := strconv.Atoi(string(found[1]))
	if err != nil || !alive(pid) {
		t.Fatalf("process %d: %v", pid, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	wait(t, func() bool { return !alive(pid) })
}

// alive is false for a zombie, too, which nobody may have collected.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}
