package secretfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

const (
	// asReader makes this test binary a process that judges the file of its first argument.
	asReader = "SECRETFILE_TEST_READER"

	exitPrivate = 0
	exitRefused = 10
	exitBroken  = 11
)

func TestMain(m *testing.M) {
	if os.Getenv(asReader) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	info, err := os.Stat(os.Args[1])
	switch {
	case err != nil:
		os.Exit(exitBroken)
	case Private(info) != nil:
		os.Exit(exitRefused)
	}
	os.Exit(exitPrivate)
}

func TestOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, private := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o700: true, 0o640: false, 0o440: false, 0o604: false, 0o660: false, 0o644: false, 0o601: false,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := Private(info); (err == nil) != private {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

// A process of another user reads what root gave to its group, as a service in a pod does, and nothing that is looser.
func TestWhatRootGivesToAGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a file of root's and another user take root")
	}
	const (
		user, own, shared, other = 65532, 65532, 4242, 4243
	)
	dir, err := os.MkdirTemp("", "secretfile") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	self := filepath.Join(dir, "reader")
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(self, binary, 0o755)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		mode     os.FileMode
		uid, gid int
		want     int
	}{
		{"as the kubelet writes it", 0o440, 0, shared, exitPrivate},
		{"for its own group", 0o440, 0, own, exitPrivate},
		{"for the group alone", 0o040, 0, shared, exitPrivate},
		{"of another group", 0o440, 0, other, exitRefused},
		{"root may write", 0o640, 0, shared, exitRefused},
		{"the group may write", 0o460, 0, shared, exitRefused},
		{"everybody may read", 0o444, 0, shared, exitRefused},
		{"its own, and its group's", 0o440, user, own, exitRefused},
		{"a third user's", 0o440, user + 1, shared, exitRefused},
		{"its own", 0o400, user, own, exitPrivate},
	} {
		if err := errors.Join(os.Chown(path, c.uid, c.gid), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, path)
		cmd.Env = []string{asReader + "=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: own, Groups: []uint32{shared}}}
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%s: exit %d, want %d", c.name, got, c.want)
		}
	}
}
