package event

// RunStarted is the first event of every run.
type RunStarted struct {
	MessageID      string `json:"message_id,omitempty"`
	HarnessID      string `json:"harness_id"`
	AdapterVersion string `json:"adapter_version"`
	ProviderRunID  string `json:"provider_run_id,omitempty"`
}

// Type is run.started.
func (RunStarted) Type() Type { return TypeRunStarted }

func (d RunStarted) check(c *checker) {
	c.optionalID("message_id", d.MessageID)
	c.harnessID("harness_id", d.HarnessID)
	c.label("adapter_version", d.AdapterVersion)
	c.optionalID("provider_run_id", d.ProviderRunID)
}

// RunFinished ends a run that succeeded.
type RunFinished struct {
	Outcome    Success `json:"outcome"`
	StopReason string  `json:"stop_reason"`
	// ThreadState is what the control plane read from the committed head. It is
	// nil in what a worker sends, and never believed from there.
	ThreadState *ThreadState `json:"thread_state,omitempty"`
}

// Type is run.finished.
func (RunFinished) Type() Type { return TypeRunFinished }

func (d RunFinished) check(c *checker) {
	c.id("stop_reason", d.StopReason)
	if d.ThreadState != nil {
		d.ThreadState.check(c)
	}
}

// Durability says whether the thread state of a run outlives its sandbox.
type Durability string

// The durabilities of a finished run.
const (
	DurabilityCommitted Durability = "committed"
	// DurabilityNone is for an ephemeral harness.
	DurabilityNone Durability = "none"
)

// ThreadState is the committed head that a finished run left behind.
type ThreadState struct {
	Durability Durability `json:"durability"`
	// DurableRevision and HeadRef are nil without a committed head.
	DurableRevision *uint64 `json:"durable_revision"`
	HeadRef         *string `json:"head_ref"`
}

// Committed is the thread state of a head.
func Committed(revision uint64, headRef string) *ThreadState {
	return &ThreadState{Durability: DurabilityCommitted, DurableRevision: &revision, HeadRef: &headRef}
}

// Ephemeral is the thread state of a harness that keeps none.
func Ephemeral() *ThreadState { return &ThreadState{Durability: DurabilityNone} }

func (s *ThreadState) check(c *checker) {
	switch s.Durability {
	case DurabilityCommitted:
		if s.DurableRevision == nil || s.HeadRef == nil {
			c.fail("thread_state", "a committed head has a revision and a reference")
			return
		}
		c.number("thread_state.durable_revision", s.DurableRevision)
		c.id("thread_state.head_ref", *s.HeadRef)
	case DurabilityNone:
		if s.DurableRevision != nil || s.HeadRef != nil {
			c.fail("thread_state", "without a committed head there is no revision and no reference")
		}
	default:
		c.fail("thread_state.durability", notOneOf)
	}
}

// InterruptReason says what an interrupted run waits for.
type InterruptReason string

// The reasons of run.interrupted.
const (
	InterruptedForHumanInput   InterruptReason = "human_input"
	InterruptedForToolApproval InterruptReason = "tool_approval"
)

// RunInterrupted ends the stream of a run that can be resumed.
type RunInterrupted struct {
	InterruptID string          `json:"interrupt_id"`
	Reason      InterruptReason `json:"reason"`
}

// Type is run.interrupted.
func (RunInterrupted) Type() Type { return TypeRunInterrupted }

func (d RunInterrupted) check(c *checker) {
	c.id("interrupt_id", d.InterruptID)
	oneOf(c, "reason", d.Reason, InterruptedForHumanInput, InterruptedForToolApproval)
}

// SideEffectStatus says what is known of the effects that a run had outside.
type SideEffectStatus string

// The states of side effects.
const (
	SideEffectsNone     SideEffectStatus = "none"
	SideEffectsPossible SideEffectStatus = "possible"
	SideEffectsKnown    SideEffectStatus = "known"
)

// CancelReason says why a run was cancelled.
type CancelReason string

// The reasons of run.cancelled.
const (
	CancelledByClient     CancelReason = "client_request"
	CancelledByDisconnect CancelReason = "disconnect"
	CancelledByShutdown   CancelReason = "shutdown"
	CancelledByDeadline   CancelReason = "deadline"
)

// RunCancelled ends a run that was stopped. It asserts nothing about effects
// that had happened before.
type RunCancelled struct {
	Reason           CancelReason     `json:"reason"`
	SideEffectStatus SideEffectStatus `json:"side_effect_status"`
}

// Type is run.cancelled.
func (RunCancelled) Type() Type { return TypeRunCancelled }

func (d RunCancelled) check(c *checker) {
	oneOf(c, "reason", d.Reason, CancelledByClient, CancelledByDisconnect, CancelledByShutdown, CancelledByDeadline)
	c.sideEffects(d.SideEffectStatus)
}

// RunError ends a run that failed. Its text is safe to show.
type RunError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	// RetryAfterSeconds is nil when unknown.
	RetryAfterSeconds *uint64          `json:"retry_after_seconds,omitempty"`
	SideEffectStatus  SideEffectStatus `json:"side_effect_status"`
}

// Type is run.error.
func (RunError) Type() Type { return TypeRunError }

func (d RunError) check(c *checker) {
	c.id("code", d.Code)
	c.text("message", d.Message, MaxMessageBytes)
	c.number("retry_after_seconds", d.RetryAfterSeconds)
	c.sideEffects(d.SideEffectStatus)
}

func (c *checker) sideEffects(s SideEffectStatus) {
	oneOf(c, "side_effect_status", s, SideEffectsNone, SideEffectsPossible, SideEffectsKnown)
}
