package logfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
)

const (
	maxWarnings = 16
	keptLines   = 12
	maxNote     = 1 << 10
)

// Notes picks out of a log what people want to see: the first warnings, and why a
// start failed. Its methods can be called from any goroutine.
type Notes struct {
	// Warn is told of the first warnings, at most 16; nil is told nothing.
	Warn func(text string)

	mu       sync.Mutex
	warnings int
	failure  string
	last     []string
}

// Add takes one line; it is a tap of a File.
func (n *Notes) Add(line []byte) {
	level, text := read(line)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch level {
	case "WARN":
		if n.warnings++; n.warnings <= maxWarnings && n.Warn != nil {
			n.Warn(text)
		}
	case "ERROR":
		n.failure = text
	case "":
		// Not of a logger: what a program says that refuses its command line, or a
		// panic, whose first lines say most.
		if text != "" && len(n.last) < keptLines {
			n.last = append(n.last, text)
		}
	}
}

// Failure is the last error in a readable form, or the first lines that no logger
// wrote; "" if there is neither.
func (n *Notes) Failure() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failure != "" {
		return n.failure
	}
	return strings.Join(n.last, "\n")
}

// read gives level and text of a line. One that slog's JSON handler did not write
// has no level.
func read(line []byte) (level, text string) {
	var attrs map[string]any
	if json.Unmarshal(line, &attrs) != nil {
		return "", clean(string(line))
	}
	level, _ = attrs["level"].(string)
	msg, _ := attrs["msg"].(string)
	if cause, ok := attrs["error"].(string); ok {
		msg += ": " + cause
	}
	if level == "" || msg == "" {
		return "", clean(string(line))
	}
	for _, key := range slices.Sorted(maps.Keys(attrs)) {
		switch key {
		case "time", "level", "msg", "error", "service":
		default:
			msg += fmt.Sprintf("; %s: %v", strings.ReplaceAll(key, "_", " "), attrs[key])
		}
	}
	return strings.ToUpper(level), clean(msg)
}

// clean makes a text fit for a terminal.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || (unicode.IsControl(r) && r != '\n' && r != '\t') {
			return -1
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + " …"
	}
	return text
}
