package native

import (
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
	"cofferdam.dev/services/worker/internal/native/model/anthropicmessages"
	"cofferdam.dev/services/worker/internal/native/model/openaichat"
	"cofferdam.dev/services/worker/internal/native/model/openairesponses"
)

// speaks says whether the adapter has a wire. "" is openai_chat.
func speaks(w harness.Wire) bool {
	switch w {
	case "", harness.WireOpenAIChat, harness.WireOpenAIResponses, harness.WireAnthropicMessages:
		return true
	case harness.WireGemini:
	}
	return false
}

// dial makes the model of a run. It makes no connection.
func dial(w harness.Wire, m harness.Model) model.Model {
	switch w {
	case harness.WireOpenAIResponses:
		return openairesponses.New(m.HTTP, m.BaseURL)
	case harness.WireAnthropicMessages:
		return anthropicmessages.New(m.HTTP, m.RootURL)
	case harness.WireOpenAIChat, harness.WireGemini:
	}
	return openaichat.New(m.HTTP, m.BaseURL)
}
