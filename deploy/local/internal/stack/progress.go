package stack

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress tells people what happens. What comes while a step is under way is
// told after it. It is safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	begun time.Time // zero between steps
	held  []string
}

func (p *progress) print(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format, args...) // who has closed stderr wants to hear nothing
}

// begin says that a part is being started.
func (p *progress) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = time.Now()
	p.print("starting %s ...", name)
}

// end says how it went.
func (p *progress) end(ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok {
		p.print(" ready in %.1fs\n", time.Since(p.begun).Seconds())
	} else {
		p.print(" failed\n")
	}
	p.begun = time.Time{}
	for _, s := range p.held {
		p.print("%s\n", s)
	}
	p.held = nil
}

// note says anything else, one line or more.
func (p *progress) note(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun.IsZero() {
		p.held = append(p.held, text)
		return
	}
	p.print("%s\n", text)
}
