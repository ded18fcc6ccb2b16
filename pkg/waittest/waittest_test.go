package waittest_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"cofferdam.dev/pkg/waittest"
)

// failed is a test that stops where it fails.
type failed struct {
	testing.TB

	says string
}

func (f *failed) Helper() {}

func (f *failed) Fatalf(_ string, args ...any) {
	f.says, _ = args[0].(string)
	runtime.Goexit()
}

// What comes late is waited for, and what never comes fails the test.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		waittest.Until(t, "the third look", func() bool { looks++; return looks == 3 })
		f, done := &failed{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			waittest.Until(f, "what never comes", func() bool { return false })
		}()
		<-done
		if looks != 3 || f.says != "what never comes" {
			t.Errorf("after %d looks %q", looks, f.says)
		}
	})
}
