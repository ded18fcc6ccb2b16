package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// maxHarnessConfig is how many bytes a worker reads of one.
const maxHarnessConfig = 256 << 10

// othersRead is the permission that workers read by: each is a user of its own, whom
// no file belongs to.
const othersRead = 0o004

// checkConfigs says which profiles name a harness configuration that their workers
// could not read: it would keep each of them from getting ready, and nothing would
// say why.
func (p *Provider) checkConfigs() error {
	var errs []error
	for i := range p.cfg.Profiles {
		if err := p.checkConfig(&p.cfg.Profiles[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) checkConfig(profile *Profile) error {
	path := profile.HarnessConfig
	if path == "" {
		return nil
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("sandbox profile %q: harness_config: %w", profile.Name, fmt.Errorf(format, args...))
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fail("%s does not exist: make it, or name another file", path)
	case err != nil:
		return fail("%w", err)
	case !info.Mode().IsRegular():
		return fail("%s is not a regular file", path)
	case info.Size() > maxHarnessConfig:
		return fail("%s has %d bytes; at most %d", path, info.Size(), maxHarnessConfig)
	case p.ids != nil && info.Mode().Perm()&othersRead == 0:
		return fail("%s belongs to uid %d and has mode %04o; workers run as uids %d to %d and cannot read it: chmod o+r %s",
			path, ownerOf(info), info.Mode().Perm(), p.ids.base, p.ids.base+blockIDs-1, path)
	}
	if p.ids != nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fail("workers run as uid %d and cannot read it, it belongs to uid %d and has mode %04o: chown or chmod it: %w",
			os.Geteuid(), ownerOf(info), info.Mode().Perm(), err)
	}
	return f.Close()
}

func ownerOf(info os.FileInfo) uint32 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Uid
	}
	return 0
}
