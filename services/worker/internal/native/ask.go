package native

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/native/model"
)

// ask streams one answer. A throttled call is made again a while later, and one
// that the model's context has no room for is made once more with less, but only
// as long as nothing of an answer was seen.
func (l *level) ask(ctx context.Context) (answer, error) {
	compacted := false
	for again := 0; ; {
		w := &writer{level: l}
		end, err := l.model.Stream(ctx, l.request(), w)
		if err == nil {
			l.used.add(end.Usage)
			a, err := w.finish(ctx, end.StopReason)
			l.see(end.Usage)
			return a, err
		}
		var f *model.FailureError
		if ctx.Err() != nil || !errors.As(err, &f) {
			return answer{}, fault.From(err, "native.ask")
		}
		switch {
		case w.began:
			// Whoever delegated may go on without the answer, so nothing stays open.
			return answer{}, errors.Join(err, w.close(ctx))
		case f.TooLong && !compacted:
			compacted = true
			if ok, cerr := l.compact(ctx, l.half()); cerr != nil || !ok {
				return answer{}, errors.Join(cerr, err)
			}
		case f.Throttled && again < l.options.ModelRetries:
			again++
			if ok, werr := l.waitToRetry(ctx, again, f); werr != nil || !ok {
				return answer{}, errors.Join(werr, err)
			}
		default:
			return answer{}, err
		}
	}
}

func (l *level) request() model.Request {
	c := l.construction
	return model.Request{
		Model: l.Model.Alias, System: l.agent.prompt, Messages: l.shown(), Offers: l.offered(),
		MaxOutputTokens: c.Model.MaxOutputTokens, Temperature: l.options.Temperature, Effort: l.options.ReasoningEffort,
	}
}

// shown are the messages with the files that the model can take. An agent may
// have got another model since a file came.
func (l *level) shown() []model.Message {
	out := make([]model.Message, len(l.conv.Messages))
	for i, m := range l.conv.Messages {
		out[i] = model.Message{Role: m.Role, Parts: make([]model.Part, len(m.Parts))}
		for j, p := range m.Parts {
			if p.Kind == model.Image && !l.construction.Model.Images || p.Kind == model.Document && !l.construction.Model.Documents {
				p = noted(p, cannotBeShown)
			}
			out[i].Parts[j] = p
		}
	}
	return out
}
