package event

// Validate finds what a single event can break: its shape, its ids and texts,
// its bounds. Bounds of zero are the defaults, and none can be raised. Errors:
// *ViolationError with rule 0, or ErrEmptyDelta.
func Validate(e Event, b Bounds) error {
	b = b.effective()
	if IsEmptyDelta(e.Data) {
		return ErrEmptyDelta
	}
	if _, err := inspect(e, &b); err != nil {
		return err
	}
	return nil
}

// inspect is Validate for effective bounds, and measures the event.
func inspect(e Event, b *Bounds) (size int, _ *ViolationError) {
	if err := inspectShape(e, b); err != nil {
		return 0, err
	}
	size, err := encodedSize(e)
	switch {
	case err != nil:
		return 0, &ViolationError{Sequence: e.Sequence, Reason: "cannot be encoded", cause: err}
	case size > b.EventBytes:
		return 0, &ViolationError{Sequence: e.Sequence, Reason: "larger than an event may be"}
	}
	return size, nil
}

// inspectShape is inspect without the size.
func inspectShape(e Event, b *Bounds) *ViolationError {
	c := checker{bounds: b}
	switch {
	case !isPayload(e.Data):
		c.fail("data", missing)
	case e.Sequence > MaxInteger:
		c.fail("sequence", tooMany)
	default:
		c.envelope(e)
		c.at = "data."
		e.Data.check(&c)
	}
	if c.err != nil {
		c.err.Sequence = e.Sequence
	}
	return c.err
}

func (c *checker) envelope(e Event) {
	c.id("run_id", e.RunID)
	c.id("conversation_id", e.ConversationID)
	if at := e.Timestamp.UTC(); e.Timestamp.IsZero() || at.Year() < 1 || at.Year() > 9999 {
		c.fail("timestamp", "not a time of RFC 3339")
	}
	if len(e.Namespace) > c.bounds.NamespaceDepth {
		c.fail("namespace", "deeper than allowed")
	}
	for _, id := range e.Namespace {
		c.id("namespace", id)
	}
}
