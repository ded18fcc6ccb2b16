package certify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// deployment looks at what a worker may, as far as there are no pods.
func deployment(ctx context.Context, w *world, l *ledger) {
	c := w.talk(plain)
	run, err := c.begin(ctx, say("here"))
	if err == nil {
		_, err = w.finish(ctx, 0, run)
	}
	if err == nil {
		err = w.privileges(ctx, run.BindingID, l)
	}
	l.holds("a worker can be looked at", err)
	for _, todo := range []struct{ what, todo string }{
		{"the image is signed", "there are no images on one machine: verify the signature that a release has for its image"},
		{"RuntimeClass and Pod Security hold", "there are no pods on one machine: check the RuntimeClass and admission policy of the cluster"},
		{"admission takes the expected image only", "there is no admission on one machine: try a pod with another digest in the cluster"},
	} {
		l.notRun(todo.what, todo.todo)
	}
}

func (w *world) privileges(ctx context.Context, binding string, l *ledger) error {
	s, b, err := w.seat(ctx, binding)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(filepath.Dir(w.cfg.Command), "worker"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(program)
	l.holds("the worker has the digest of the program that was expected", judgeDigest(b.Lease.ImageDigest, "sha256:"+hex.EncodeToString(sum[:])))
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "status"))
	if err != nil {
		return err
	}
	l.holds("the worker has a filter of system calls, no capability, no way to one, and is not root", judgePrivileges(string(status)))
	return nil
}

func judgeDigest(got, want string) error {
	if got != want || got == "" {
		return fmt.Errorf("the lease says %s, the program is %s", got, want)
	}
	return nil
}

// judgePrivileges reads /proc/PID/status.
func judgePrivileges(status string) error {
	var errs []error
	for name, want := range map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		if !strings.Contains(status, "\n"+name+":\t"+want+"\n") {
			errs = append(errs, fmt.Errorf("%s is not %s", name, want))
		}
	}
	if regexp.MustCompile(`\n[UG]id:\t(\d+\t)*0[\t\n]`).MatchString(status) || !strings.Contains(status, "\nUid:\t") {
		errs = append(errs, errors.New("it is root"))
	}
	return errors.Join(errs...)
}

// judgeLimits reads /proc/PID/limits. A limit of one byte is less than none: with it the
// kernel starts no program for a core either, see core(5).
func judgeLimits(limits string) error {
	for line := range strings.Lines(limits) {
		if rest, ok := strings.CutPrefix(line, "Max core file size"); ok {
			if f := strings.Fields(rest); len(f) < 2 || f[0] != f[1] || f[0] != "0" && f[0] != "1" {
				return fmt.Errorf("cores may have %s", strings.Join(f, " "))
			}
			return nil
		}
	}
	return errors.New("nothing is known of cores")
}
