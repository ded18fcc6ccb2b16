package call

import (
	"context"
	"log/slog"
	"time"

	"cofferdam.dev/pkg/fault"
)

// audit is one line for each decision and its outcome. It has no argument and no
// result, and of the caller only the binding, whose id is a keyed digest.
type audit struct {
	Request

	argsDigest string
	allowed    bool
}

func (a *audit) write(ctx context.Context, logger *slog.Logger, answer Answer, err error, took time.Duration) {
	e := a.Grant.Envelope()
	attrs := []slog.Attr{
		slog.String("binding_id", e.BindingID), slog.Uint64("epoch", uint64(e.Epoch)), slog.Uint64("generation", uint64(e.Generation)),
		slog.String("run_id", e.RunID), slog.String("tool_id", a.ToolID), slog.String("tool_call_id", a.ToolCallID),
		slog.String("arguments", a.argsDigest), slog.Bool("allowed", a.allowed), slog.Duration("took", took),
	}
	if f := fault.From(err, ""); f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code())), slog.String("incident_id", f.Incident()))
	} else {
		attrs = append(attrs, slog.Bool("is_error", answer.IsError), slog.Bool("truncated", answer.Truncated), slog.Bool("replayed", answer.Replayed))
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "tool call", attrs...)
}
