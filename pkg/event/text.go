package event

// TextStarted opens a message of the assistant.
type TextStarted struct {
	MessageID string    `json:"message_id"`
	Role      Assistant `json:"role"`
}

// Type is text.started.
func (TextStarted) Type() Type { return TypeTextStarted }

func (d TextStarted) check(c *checker) { c.id("message_id", d.MessageID) }

// TextDelta adds to an open message.
type TextDelta struct {
	MessageID string `json:"message_id"`
	Delta     string `json:"delta"`
}

// Type is text.delta.
func (TextDelta) Type() Type { return TypeTextDelta }

func (d TextDelta) check(c *checker) {
	c.id("message_id", d.MessageID)
	c.delta(d.Delta)
}

// TextFinished closes a message. Its id never opens again.
type TextFinished struct {
	MessageID string `json:"message_id"`
}

// Type is text.finished.
func (TextFinished) Type() Type { return TypeTextFinished }

func (d TextFinished) check(c *checker) { c.id("message_id", d.MessageID) }

// ReasoningStarted opens a piece of reasoning. A harness may have none.
type ReasoningStarted struct {
	MessageID string `json:"message_id"`
}

// Type is reasoning.started.
func (ReasoningStarted) Type() Type { return TypeReasoningStarted }

func (d ReasoningStarted) check(c *checker) { c.id("message_id", d.MessageID) }

// ReasoningDelta adds to an open piece of reasoning.
type ReasoningDelta struct {
	MessageID string `json:"message_id"`
	Delta     string `json:"delta"`
}

// Type is reasoning.delta.
func (ReasoningDelta) Type() Type { return TypeReasoningDelta }

func (d ReasoningDelta) check(c *checker) {
	c.id("message_id", d.MessageID)
	c.delta(d.Delta)
}

// ReasoningFinished closes a piece of reasoning. Its id never opens again.
type ReasoningFinished struct {
	MessageID string `json:"message_id"`
}

// Type is reasoning.finished.
func (ReasoningFinished) Type() Type { return TypeReasoningFinished }

func (d ReasoningFinished) check(c *checker) { c.id("message_id", d.MessageID) }
