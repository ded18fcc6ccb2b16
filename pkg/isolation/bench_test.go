//go:build linux

package isolation_test

import (
	"testing"

	"cofferdam.dev/pkg/isolation"
)

// BenchmarkStart is the time from the call of Start to the first line of a program, with the end of the sandbox outside
// of the measurement.
func BenchmarkStart(b *testing.B) {
	for name, spec := range map[string]isolation.Spec{"one world": outer("euid", "any"), "nested": nested("euid", "any")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := begin(b, isolation.Launch{Spec: spec, FirstID: nextID()})
				s.says(b)
				b.StopTimer()
				if err := s.Stop(0); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
