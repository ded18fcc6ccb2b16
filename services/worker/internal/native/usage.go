package native

import (
	"context"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	"cofferdam.dev/pkg/event"
)

// usage of tokens. What no model has told stays unknown.
type usage struct {
	input, output, cached *uint64
}

// usageOf is what one chunk tells, for the whole answer so far.
func usageOf(u openai.CompletionUsage) usage {
	return usage{
		input:  told(u.JSON.PromptTokens, u.PromptTokens),
		output: told(u.JSON.CompletionTokens, u.CompletionTokens),
		cached: told(u.PromptTokensDetails.JSON.CachedTokens, u.PromptTokensDetails.CachedTokens),
	}
}

// told is a count that is there and that an event may have.
func told(field respjson.Field, n int64) *uint64 {
	if !field.Valid() || n < 0 || n > event.MaxInteger {
		return nil
	}
	u := uint64(n)
	return &u
}

// add counts a further answer.
func (u *usage) add(more usage) {
	u.input, u.output, u.cached = sum(u.input, more.input), sum(u.output, more.output), sum(u.cached, more.cached)
}

func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return either(a, b)
	}
	n := min(*a+*b, event.MaxInteger)
	return &n
}

func either(a, b *uint64) *uint64 {
	if a != nil {
		return a
	}
	return b
}

// emitUsage tells what the run has used so far, if anything is known.
func (t *turn) emitUsage(ctx context.Context, final bool) error {
	u := t.usage
	if u == (usage{}) {
		return nil
	}
	return t.emit.Emit(ctx, event.Draft{Data: event.UsageUpdated{
		InputTokens: u.input, OutputTokens: u.output, CachedInputTokens: u.cached, Final: final,
	}})
}
