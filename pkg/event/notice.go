package event

import "math"

// Warning tells people of something that did not stop the run. Its text is safe
// to show.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Details is flat: scalars only.
	Details Object `json:"details,omitempty"`
}

// Type is warning.
func (Warning) Type() Type { return TypeWarning }

func (d Warning) check(c *checker) {
	c.id("code", d.Code)
	c.text("message", d.Message, MaxMessageBytes)
	if d.Details != "" {
		c.flat("details", d.Details, nil)
	}
}

// UsageUpdated counts what a run has used so far. What is unknown is nil, never
// an invented 0.
type UsageUpdated struct {
	InputTokens       *uint64 `json:"input_tokens"`
	OutputTokens      *uint64 `json:"output_tokens"`
	CachedInputTokens *uint64 `json:"cached_input_tokens"`
	// Cost is in Currency.
	Cost     *float64 `json:"cost"`
	Currency *string  `json:"currency"`
	// Final marks the count of the whole run.
	Final bool `json:"final"`
}

// Type is usage.updated.
func (UsageUpdated) Type() Type { return TypeUsageUpdated }

func (d UsageUpdated) check(c *checker) {
	c.number("input_tokens", d.InputTokens)
	c.number("output_tokens", d.OutputTokens)
	c.number("cached_input_tokens", d.CachedInputTokens)
	if d.Cost != nil && !(*d.Cost >= 0 && *d.Cost <= math.MaxFloat64) {
		c.fail("cost", "not a finite number of at least 0")
	}
	if d.Currency != nil {
		c.id("currency", *d.Currency)
	}
}

// ProviderMetadata is for operators. It never reaches a public stream.
type ProviderMetadata struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Metadata is flat, with keys of MetadataKeys only.
	Metadata Object `json:"metadata"`
}

// Type is provider.metadata.
func (ProviderMetadata) Type() Type { return TypeProviderMetadata }

func (d ProviderMetadata) check(c *checker) {
	c.label("provider", d.Provider)
	c.label("model", d.Model)
	c.flat("metadata", d.Metadata, MetadataKeys())
}

// MetadataKeys are the keys that provider.metadata may have. An adapter drops
// everything else that a provider tells.
func MetadataKeys() []string {
	return []string{
		"api_version", "attempt", "cache_hit", "created_at", "deployment", "endpoint_alias", "finish_reason", "latency_ms",
		"model_version", "region", "request_id", "response_id", "service_tier", "stop_sequence", "system_fingerprint", "wire",
	}
}
