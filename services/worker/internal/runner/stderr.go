//go:build linux

package runner

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"cofferdam.dev/pkg/telemetry/redact"
)

// Bounds of what a program may write into the log. What goes beyond is dropped,
// and counted: the log is not the program's to fill, and the program never waits
// for it.
const (
	maxLine     = 1 << 10 // bytes
	linesASpell = 20
	spell       = time.Second
)

// logLines writes r to the log line by line, until it ends, for whoever debugs a
// program: some print whole conversations, so it is shown at no other level, and
// what looks like a secret is masked also there.
func logLines(log *slog.Logger, r io.Reader, now func() time.Time) {
	lines := bufio.NewReaderSize(r, maxLine)
	budget := budget{now: now}
	var secrets redact.Lines
	cut := false // within a line that was too long
	for {
		line, err := lines.ReadSlice('\n')
		wanted := len(line) > 0 && !cut
		dropped, ok := 0, false
		if wanted {
			dropped, ok = budget.take()
		}
		if ok {
			if dropped > 0 {
				log.Debug("lines of the program were dropped", "count", dropped)
			}
			text := strings.ToValidUTF8(strings.TrimSuffix(string(line), "\n"), "\uFFFD")
			log.Debug("program", "text", secrets.Line(text), "cut", errors.Is(err, bufio.ErrBufferFull))
		} else {
			secrets.Skip(string(line))
		}
		cut = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut {
			if budget.dropped > 0 {
				log.Debug("lines of the program were dropped", "count", budget.dropped)
			}
			return
		}
	}
}

// budget gives so many lines a spell.
type budget struct {
	now     func() time.Time
	begun   time.Time
	used    int
	dropped int
}

// take asks for one line; it also says how many got none since the last that did.
func (b *budget) take() (dropped int, ok bool) {
	if t := b.now(); t.Sub(b.begun) >= spell {
		b.begun, b.used = t, 0
	}
	if b.used++; b.used > linesASpell {
		b.dropped++
		return 0, false
	}
	dropped, b.dropped = b.dropped, 0
	return dropped, true
}
