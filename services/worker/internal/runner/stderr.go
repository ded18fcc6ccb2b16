//go:build linux

package runner

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"time"
)

// Bounds of what a program may write into the log. What goes beyond is dropped,
// and counted: the log is not the program's to fill, and the program never waits
// for it.
const (
	maxLine     = 2 << 10 // bytes
	linesASpell = 100
	spell       = 10 * time.Second
)

// logLines writes r to the log line by line, until it ends.
func logLines(log *slog.Logger, r io.Reader, now func() time.Time) {
	lines := bufio.NewReaderSize(r, maxLine)
	budget := budget{now: now}
	cut := false // within a line that was too long
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 && !cut {
			if dropped, ok := budget.take(); ok {
				if dropped > 0 {
					log.Warn("lines of the program were dropped", "count", dropped)
				}
				log.Info("program", "text", trim(line), "cut", err != nil && errors.Is(err, bufio.ErrBufferFull))
			}
		}
		cut = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut {
			if budget.dropped > 0 {
				log.Warn("lines of the program were dropped", "count", budget.dropped)
			}
			return
		}
	}
}

func trim(line []byte) string {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	return string(line)
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
