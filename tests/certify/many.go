package certify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cofferdam.dev/tests/scale"
)

// thousand is how many bindings requirement 12 asks for.
const thousand = 1000

// many has as many bindings as were asked for at once, in a stack of their own.
func many(ctx context.Context, w *world, l *ledger) {
	r, err := w.scaled(ctx)
	if err == nil {
		err = r.Verdict()
	}
	for name, value := range map[string]int{
		"bindings": r.Bindings, "peak_live": r.PeakLive, "completed": r.Completed, "crossed_canaries": r.CrossedCanaries, "places_read": r.Places,
	} {
		l.figure(name, float64(value))
	}
	l.figure("rss_mib_per_idle_worker", r.RSSMiB)
	l.figure("pss_mib_per_idle_worker", r.PSSMiB)
	l.holds("all bindings are alive at once, each in a sandbox of its own, each finishes a turn with a tool call, and no canary stands where it does not belong", err)
	if w.cfg.Bindings < thousand {
		l.notRun("a thousand bindings", fmt.Sprintf("there were %d of them: --bindings %d, which takes about 10 MiB for each and more for larger harnesses", w.cfg.Bindings, thousand))
	}
}

func (w *world) scaled(ctx context.Context) (r scale.Report, err error) {
	folder := filepath.Join(w.cfg.Folder, "m")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return r, err
	}
	flags, err := w.target.crowd(folder, w.cfg.Bindings)
	if err != nil {
		return r, err
	}
	if w.cfg.AllowWeakIsolation {
		flags = append(flags, "--allow-weak-isolation")
	}
	r, err = scale.Run(ctx, scale.Config{
		Command: w.cfg.Command, Folder: folder, Bindings: w.cfg.Bindings, Progress: w.cfg.Progress,
		Target: scale.Target{Agent: plain, Flags: flags, Message: func(canary string) string { return w.phrase.script(say(canary), list()) }},
	})
	return r, errors.Join(err, os.RemoveAll(folder))
}
