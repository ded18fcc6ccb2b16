package agui

import (
	"encoding/json"
	"fmt"

	"cofferdam.dev/pkg/event"
)

const (
	outcomeSuccess   = "success"
	outcomeInterrupt = "interrupt"
	outcomeCancelled = "cancelled"
)

func (e *Encoder) runStarted() {
	e.run("RUN_STARTED", runFrame{ProtocolVersion: ProtocolVersion}, metadata{})
	if n := e.client.Skipped; n > 0 {
		e.put(customFrame{base: e.base("CUSTOM", ""), Name: "WARNING", Value: warningValue{
			Code: "content_skipped", Message: "Parts of the message that are not text were left out.",
			Details: json.RawMessage(fmt.Sprintf(`{"parts":%d}`, n)),
		}})
	}
}

// terminal writes the last frame of a run.
func (e *Encoder) terminal(d event.Data) {
	switch p := d.(type) {
	case event.RunFinished:
		md := metadata{"stop_reason": p.StopReason}
		if s := p.ThreadState; s != nil {
			md["durability"] = s.Durability
			if s.DurableRevision != nil {
				md["durable_revision"] = *s.DurableRevision
			}
		}
		e.finished(outcome{Type: outcomeSuccess}, md)
	case event.RunCancelled:
		e.finished(outcome{Type: outcomeCancelled}, metadata{"reason": p.Reason, "side_effect_status": p.SideEffectStatus})
	case event.RunInterrupted:
		e.interrupted()
	case event.RunError:
		e.runError(p)
	default:
		e.failed = fmt.Errorf("agui: no encoding for %T", d)
	}
}

func (e *Encoder) finished(o outcome, md metadata) {
	e.run("RUN_FINISHED", runFrame{Outcome: &o, Usage: e.counted(md)}, md)
}

func (e *Encoder) run(kind string, f runFrame, md metadata) {
	md["run_id"] = e.ids.run
	f.base = e.base(kind, "")
	f.Metadata, f.ThreadID, f.RunID = md, e.threadID, e.runID
	e.put(f)
}

func (e *Encoder) runError(p event.RunError) {
	md := metadata{"run_id": e.ids.run, "retryable": p.Retryable, "side_effect_status": p.SideEffectStatus}
	if p.RetryAfterSeconds != nil {
		md["retry_after_seconds"] = *p.RetryAfterSeconds
	}
	f := errorFrame{base: e.base("RUN_ERROR", ""), Message: p.Message, Code: p.Code, Usage: e.counted(md)}
	f.Metadata = md
	e.put(f)
}

// counted is the final usage, as far as it is known. AG-UI counts tokens only:
// what the run cost goes into md.
func (e *Encoder) counted(md metadata) []usage {
	if e.usage == nil {
		return nil
	}
	if e.usage.Cost != nil {
		md["cost"] = *e.usage.Cost
	}
	if e.usage.Currency != nil {
		md["currency"] = *e.usage.Currency
	}
	u := usage{InputTokens: e.usage.InputTokens, OutputTokens: e.usage.OutputTokens, CachedInputTokens: e.usage.CachedInputTokens}
	if u == (usage{}) {
		return nil
	}
	return []usage{u}
}
