//go:build linux

package runnertest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runner"
)

// folderSize of a tmpfs in a nested world.
const folderSize = "size=16m"

// nest builds the mounts of a world, gives up every capability but the runner's
// own, and becomes the runner. It does in small what the sandbox provider does.
func nest(args []string) int {
	if err := build(args); err != nil {
		fmt.Fprintln(os.Stderr, "nest:", err)
	}
	return 1
}

func build(args []string) error {
	var cfg runner.Config
	flags := flag.NewFlagSet("nest", flag.ContinueOnError)
	cfg.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	runtime.LockOSThread() // capabilities are a thread's
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	for _, f := range []string{cfg.Home, cfg.Workspace, cfg.Temp} {
		if err := unix.Mount("tmpfs", f, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, folderSize); err != nil {
			return fmt.Errorf("tmpfs: %w", err)
		}
	}
	if err := limitCapabilities(); err != nil {
		return err
	}
	env := []string{role + "=" + roleRunner, "GORACE=" + os.Getenv("GORACE")}
	return syscall.Exec("/proc/self/exe", append([]string{"runner"}, args...), env)
}

func limitCapabilities() error {
	keep := uint32(1<<unix.CAP_KILL | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER)
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if c < 32 && keep&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	caps := [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	if err := unix.Capset(&head, &caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}
