package anthropicmessages

import (
	"github.com/anthropics/anthropic-sdk-go"

	"cofferdam.dev/services/worker/internal/native/model"
)

// counts are the numbers of an answer. This wire counts what was read from the
// cache and what was written to it beside the input.
type counts struct {
	input, output, read, written *uint64
}

func (c *counts) start(u anthropic.Usage) {
	c.input = model.Count(u.JSON.InputTokens.Valid(), u.InputTokens)
	c.output = model.Count(u.JSON.OutputTokens.Valid(), u.OutputTokens)
	c.read = model.Count(u.JSON.CacheReadInputTokens.Valid(), u.CacheReadInputTokens)
	c.written = model.Count(u.JSON.CacheCreationInputTokens.Valid(), u.CacheCreationInputTokens)
}

// update takes the numbers of the whole answer so far.
func (c *counts) update(u anthropic.MessageDeltaUsage) {
	c.input = newer(model.Count(u.JSON.InputTokens.Valid(), u.InputTokens), c.input)
	c.output = newer(model.Count(u.JSON.OutputTokens.Valid(), u.OutputTokens), c.output)
	c.read = newer(model.Count(u.JSON.CacheReadInputTokens.Valid(), u.CacheReadInputTokens), c.read)
	c.written = newer(model.Count(u.JSON.CacheCreationInputTokens.Valid(), u.CacheCreationInputTokens), c.written)
}

func newer(told, before *uint64) *uint64 {
	if told != nil {
		return told
	}
	return before
}

// usage has no cache in it where the provider speaks of none.
func (c *counts) usage() model.Usage {
	u := model.Usage{Input: c.input, Output: c.output, Cached: c.read}
	for _, more := range []*uint64{c.read, c.written} {
		if more != nil {
			u.Input = model.Sum(u.Input, more)
		}
	}
	return u
}
