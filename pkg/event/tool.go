package event

// ToolStarted opens a tool call.
type ToolStarted struct {
	ToolCallID string `json:"tool_call_id"`
	// ToolName is the tool id, never the name that a model was offered.
	ToolName string `json:"tool_name"`
	// Arguments may be EmptyObject when they stream later, and only then may
	// they stream.
	Arguments       Object `json:"arguments"`
	ParentMessageID string `json:"parent_message_id,omitempty"`
}

// Type is tool.started.
func (ToolStarted) Type() Type { return TypeToolStarted }

func (d ToolStarted) check(c *checker) {
	c.id("tool_call_id", d.ToolCallID)
	c.toolID("tool_name", d.ToolName)
	c.arguments("arguments", d.Arguments)
	c.optionalID("parent_message_id", d.ParentMessageID)
}

// ToolArgumentsDelta is a fragment of the JSON text of a call's arguments.
type ToolArgumentsDelta struct {
	ToolCallID string `json:"tool_call_id"`
	Delta      string `json:"delta"`
}

// Type is tool.arguments.delta.
func (ToolArgumentsDelta) Type() Type { return TypeToolArgumentsDelta }

func (d ToolArgumentsDelta) check(c *checker) {
	c.id("tool_call_id", d.ToolCallID)
	c.delta(d.Delta)
}

// ToolFinished ends a call that gave a result.
type ToolFinished struct {
	ToolCallID string `json:"tool_call_id"`
	// Result is a bounded projection, usually a string; see ProjectText.
	Result Value `json:"result"`
	// ResultRef leads to the whole result where the projection is only a part.
	ResultRef string `json:"result_ref,omitempty"`
}

// Type is tool.finished.
func (ToolFinished) Type() Type { return TypeToolFinished }

func (d ToolFinished) check(c *checker) {
	c.id("tool_call_id", d.ToolCallID)
	c.result(d.Result)
	c.optionalID("result_ref", d.ResultRef)
}

// ToolError ends a call that gave no result. Its text is safe to show.
type ToolError struct {
	ToolCallID string `json:"tool_call_id"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Retryable  bool   `json:"retryable"`
}

// Type is tool.error.
func (ToolError) Type() Type { return TypeToolError }

func (d ToolError) check(c *checker) {
	c.id("tool_call_id", d.ToolCallID)
	c.id("code", d.Code)
	c.text("message", d.Message, MaxMessageBytes)
}
