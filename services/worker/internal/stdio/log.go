package stdio

import (
	"context"

	"cofferdam.dev/pkg/event"
)

const (
	maxLogs    = 256 // of a turn
	maxLogText = 1 << 10
)

// log passes on what a program says for whoever debugs it. It may be anything,
// so it is kept apart, short, and only where debugging was asked for.
func (t *turn) log(ctx context.Context, text string) {
	if t.logs++; t.logs > maxLogs {
		return
	}
	t.Logger.DebugContext(ctx, "program says", "run_id", t.runID, "text", event.Truncate(event.SanitizeText(text), maxLogText))
}
