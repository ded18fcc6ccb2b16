//go:build linux

package isolation

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The versions of Landlock that are made use of. Below the first a file cannot be moved between folders, which programs
// need to; above the last come rights that nobody has tried here, such as one to connect to a Unix socket at all.
const (
	minLandlock = 2
	maxLandlock = 7
)

var landlockVersions = map[int]landlock.Config{
	2: landlock.V2, 3: landlock.V3, 4: landlock.V4, 5: landlock.V5, 6: landlock.V6, 7: landlock.V7,
}

// landlockRules makes the ruleset of a world. It is made while every path can still be opened, and put on later.
func landlockRules(s *Spec, hostRoot bool) (fd int, err error) {
	version, err := llsys.LandlockGetABIVersion()
	if err != nil {
		return -1, fmt.Errorf("the kernel has none: %w", err)
	}
	if version < minLandlock {
		return -1, fmt.Errorf("version %d of the kernel is too old, at least %d is needed (Linux 5.19)", version, minLandlock)
	}
	cfg := landlockVersions[min(version, maxLandlock)]
	cfg.HandledAccessNet = 0 // the network namespace has nothing but loopback
	rules, err := rules(s, s.Terminals && !hostRoot, cfg.HandledAccessFS&llsys.AccessFSIoctlDev != 0)
	if err != nil {
		return -1, err
	}
	fd, _, err = cfg.NewRulesetFD(rules...)
	if err == nil && fd < 0 {
		err = errors.New("nothing is restricted")
	}
	return fd, err
}

func rules(s *Spec, terminals, ioctl bool) ([]landlock.Rule, error) {
	rules := []landlock.Rule{
		landlock.ROFiles(s.Program.Path), landlock.RODirs("/proc"), landlock.RWFiles(devices...),
	}
	if terminals {
		pts := landlock.RWDirs("/dev/pts")
		if ioctl {
			pts = pts.WithIoctlDev()
		}
		rules = append(rules, pts)
	}
	for _, p := range s.Access.ReadOnly {
		folder, err := isFolder(p)
		switch {
		case err != nil:
			return nil, err
		case folder:
			rules = append(rules, landlock.RODirs(p))
		default:
			rules = append(rules, landlock.ROFiles(p))
		}
	}
	for _, p := range s.Access.ReadWrite {
		folder, err := isFolder(p)
		switch {
		case err != nil:
			return nil, err
		case folder:
			rules = append(rules, landlock.RWDirs(p).WithRefer())
		default:
			rules = append(rules, landlock.RWFiles(p))
		}
	}
	return rules, nil
}

func isFolder(p string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		return false, fmt.Errorf("access to %s: %w", p, err)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// restrict puts a ruleset on the calling thread, which is the one that becomes the program.
func restrict(fd int) error { return llsys.LandlockRestrictSelf(fd, 0) }
