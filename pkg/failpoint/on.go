//go:build failpoint

package failpoint

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// armed are the points at which whoever comes next stays.
var armed = listen()

// listen arms points whose signal comes, for as long as the process lives.
func listen() *[points]atomic.Bool {
	var flags [points]atomic.Bool
	signals := make(chan os.Signal, points)
	for _, p := range All() {
		signal.Notify(signals, p.Signal())
	}
	go func() {
		for s := range signals {
			if n, ok := s.(syscall.Signal); ok {
				flags[int(n)-firstSignal].Store(true)
			}
		}
	}()
	return &flags
}

// Reach never returns at a point that is armed.
func Reach(p Point) {
	if armed[p].Load() {
		signal.Ignore(p.Signal())
		select {}
	}
}
