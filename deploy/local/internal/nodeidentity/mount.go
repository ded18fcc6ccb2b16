package nodeidentity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxStacked bounds how many mounts are taken away from one path.
const maxStacked = 16

// bind shows a folder at target, read-only. A socket in it can be connected to all the same.
func bind(folder, target string) error {
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mount(folder, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	const readOnly = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", target, "", readOnly, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s read-only: %w", target, err), unbind(target))
	}
	return nil
}

// bound says whether target shows the folder. A folder has no other name, so it is the same one only through a mount.
func bound(folder, target string) (bool, error) {
	want, err := os.Stat(folder)
	if err != nil {
		return false, ignoreAbsent(err)
	}
	got, err := os.Lstat(target)
	if err != nil {
		return false, ignoreAbsent(err)
	}
	return os.SameFile(want, got), nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unbind takes away whatever is mounted at target, and the folder there. It can be repeated.
func unbind(target string) error {
	for range maxStacked {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // it is no mount
			return ignoreAbsent(os.Remove(target))
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return fmt.Errorf("unmount %s: more than %d mounts are on it", target, maxStacked)
}
