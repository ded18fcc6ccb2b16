//go:build !race

package api_test

import (
	"maps"
	"slices"
	"testing"

	"cofferdam.dev/pkg/binding/bindingtest"
)

// Whatever fails, and however much a worker says meanwhile, the control plane keeps
// no more of it in memory than its bounds: the rest is in the log, or not taken.
// The heap is weighed, so nothing runs beside.
//
//nolint:paralleltest,tparallel // see above
func TestNoFaultFillsTheMemory(t *testing.T) {
	all := troubles()
	for _, what := range slices.Sorted(maps.Keys(all)) {
		t.Run(what, func(t *testing.T) {
			f := all[what]
			f.talkative = flood
			d := newTroubleOn(t, f, &shelf{Backend: bindingtest.NewMemory(), folder: t.TempDir()})
			d.scales = newScales()
			d.play(t, promises(t)[what])
			kept := d.scales.heaviest()
			t.Logf("%d KiB are kept of the %d that the worker said", kept>>10, d.taken.Load()>>10)
			if err := d.scales.broken; err != nil {
				t.Error(err)
			}
			if kept > mayKeep {
				t.Errorf("%d KiB are kept, more than %d", kept>>10, mayKeep>>10)
			}
		})
	}
}
