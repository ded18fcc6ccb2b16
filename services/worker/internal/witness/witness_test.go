package witness

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A trace comes in pieces, and is read to its end whatever it says.
func TestHear(t *testing.T) {
	long := strings.Repeat("goroutine 7 [running]:\n", 10_000)
	for name, row := range map[string]struct{ trace, want string }{
		"a thread refused":  {"\nruntime stack:\nruntime.throw({0x1, 0x2})\nruntime.newosproc(0x3)\n" + long, PIDs},
		"a panic":           {"goroutine 1 [running]:\nmain.main()\n" + long, ""},
		"no trace at all":   {"", ""},
		"named far too far": {long + "runtime.newosproc(0x3)\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			trace := strings.NewReader(row.trace)
			if err := Hear(iotest.HalfReader(trace), &log); err != nil || log.String() != row.want || trace.Len() != 0 {
				t.Errorf("said %q, %v, want %q; %d bytes were not read", log.String(), err, row.want, trace.Len())
			}
		})
	}
}

func TestWhatCannotBeHeard(t *testing.T) {
	broken := errors.New("broken")
	if err := Hear(iotest.ErrReader(broken), io.Discard); !errors.Is(err, broken) {
		t.Error(err)
	}
}
