package mcpstdio_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
)

// ownUID is the user of the server in this test: nobody's on a build machine.
const ownUID = 61001

// snoop is a server that tries to read what belongs to its broker, and says on its
// stderr what it got. It speaks no MCP, so the start fails and tells the end of
// that.
const snoop = `
try() { name=$1; shift; if got=$("$@" 2>/dev/null) && [ -n "$got" ]; then echo "READ $name"; else echo "refused $name"; fi; }
{
  echo "uid $(id -u) gid $(id -g) groups $(id -G)"
  grep NoNewPrivs /proc/self/status
  try database head -c 16 "$1/bindings.db"
  try folder ls "$1"
  try environ head -c 1 "/proc/$PPID/environ"
  try memory dd if="/proc/$PPID/mem" bs=1 count=1 skip="$2"
  try descriptors ls "/proc/$PPID/fd"
  try kill sh -c "kill -0 $PPID && echo alive"
} >&2
`

// snooped is what the server got, as a user.
func snooped(t *testing.T, user uint32) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bindings.db"), []byte("SQLite format 3"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mine := [1]byte{1} // an address of this process that can be read
	_, err := mcpstdio.Start(t.Context(), mcpstdio.Config{
		Command: []string{"/bin/sh", "-c", snoop, "snoop", dir, strconv.FormatUint(address(&mine), 10)},
		Env:     []string{"PATH=/usr/bin:/bin"}, ConnectTimeout: 20 * time.Second, RunAs: user,
	})
	if err == nil {
		t.Fatal("what is no server was taken for one")
	}
	said, ok := errors.AsType[*mcpstdio.StderrError](err)
	if !ok {
		return "", err
	}
	return said.Tail, err
}

// address is where a byte of this process stands.
func address(b *[1]byte) uint64 {
	var at uint64
	if _, err := fmt.Sscanf(fmt.Sprintf("%p", b), "0x%x", &at); err != nil {
		panic(err)
	}
	return at
}

// A server with a uid of its own reads nothing of the broker's. Without one it
// reads all of it, which shows that the attempts are good ones; and who cannot
// give it one starts nothing.
func TestAServerOfAnotherUserReadsNothingOfTheBroker(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := snooped(t, ownUID); !errors.Is(err, mcpstdio.ErrUID) || !strings.Contains(err.Error(), "layer uid") {
			t.Errorf("started by a user who is not root: %v, want the layer that is missing", err)
		}
		return
	}
	what := []string{"database", "folder", "environ", "memory", "descriptors", "kill"}
	said, err := snooped(t, ownUID)
	for _, name := range what {
		if !strings.Contains(said, "refused "+name) {
			t.Errorf("%s: it said %q, %v", name, said, err)
		}
	}
	if !strings.Contains(said, fmt.Sprintf("uid %d gid %d groups %d\n", ownUID, ownUID, ownUID)) || !strings.Contains(said, "NoNewPrivs:\t1") {
		t.Errorf("it is %q", said)
	}
	said, err = snooped(t, 0)
	for _, name := range what[:3] { // memory and the rest depend on the machine's settings
		if !strings.Contains(said, "READ "+name) {
			t.Errorf("as the broker's user it does not read %s, so this test shows nothing: %q, %v", name, said, err)
		}
	}
}
