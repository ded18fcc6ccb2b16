package event

// Bounds of the contract that a profile may lower.
const (
	// MaxEventBytes is the size of one event as JSON.
	MaxEventBytes = 256 << 10
	// MaxDeltaBytes is the size of one delta.
	MaxDeltaBytes = 64 << 10
	// MaxIDLength is in characters of [A-Za-z0-9._:-].
	MaxIDLength = 128
	// MaxArgumentsBytes and MaxArgumentsDepth hold for the arguments of a tool
	// call, also when they are joined from deltas.
	MaxArgumentsBytes = 256 << 10
	MaxArgumentsDepth = 32
	// MaxResultBytes is the size of the projection of a tool's result, as JSON.
	MaxResultBytes = 64 << 10
	// MaxRunEvents and MaxRunBytes hold for a whole run, its closing events
	// included.
	MaxRunEvents = 100_000
	MaxRunBytes  = 64 << 20
	// MaxOpenTools, MaxOpenTexts and MaxOpenReasonings may be open at once.
	MaxOpenTools      = 64
	MaxOpenTexts      = 16
	MaxOpenReasonings = 16
	// MaxOpenNamespaces may be open at once, none deeper than MaxNamespaceDepth.
	MaxOpenNamespaces = 16
	MaxNamespaceDepth = 8
	// MaxDetailsBytes and MaxDetailsKeys hold for warning details and provider
	// metadata.
	MaxDetailsBytes = 4 << 10
	MaxDetailsKeys  = 32
)

// Bounds that the contract leaves to the implementation; no profile changes
// them.
const (
	// MaxInteger is the largest integer that every JSON reader keeps exact.
	MaxInteger = 1<<53 - 1
	// MaxMessageBytes is the size of a text for people: messages and
	// descriptions.
	MaxMessageBytes = 4 << 10
	// MaxPromptBytes is the size of the prompt of a form.
	MaxPromptBytes = 16 << 10
	// MaxNameBytes is the size of a name or a value to choose.
	MaxNameBytes = 256
	// MaxToolIDLength is in characters of [A-Za-z0-9._/-].
	MaxToolIDLength = 193
	// MaxFormFields and MaxFieldValues bound a form.
	MaxFormFields  = 64
	MaxFieldValues = 256
	// MaxFrameEvents and MaxFrameBytes bound a frame of a worker's stream. One
	// event that is larger travels alone.
	MaxFrameEvents = 64
	MaxFrameBytes  = 128 << 10
)

// Bounds are what a run may use. Sizes are in bytes. A zero field stands for
// the default.
type Bounds struct {
	EventBytes, DeltaBytes, IDLength     int
	ArgumentsBytes, ArgumentsDepth       int
	ResultBytes                          int
	RunEvents, RunBytes                  int
	OpenTools, OpenTexts, OpenReasonings int
	OpenNamespaces, NamespaceDepth       int
	DetailsBytes, DetailsKeys            int
}

// DefaultBounds are those of the contract.
func DefaultBounds() Bounds {
	return Bounds{
		EventBytes: MaxEventBytes, DeltaBytes: MaxDeltaBytes, IDLength: MaxIDLength,
		ArgumentsBytes: MaxArgumentsBytes, ArgumentsDepth: MaxArgumentsDepth,
		ResultBytes: MaxResultBytes,
		RunEvents:   MaxRunEvents, RunBytes: MaxRunBytes,
		OpenTools: MaxOpenTools, OpenTexts: MaxOpenTexts, OpenReasonings: MaxOpenReasonings,
		OpenNamespaces: MaxOpenNamespaces, NamespaceDepth: MaxNamespaceDepth,
		DetailsBytes: MaxDetailsBytes, DetailsKeys: MaxDetailsKeys,
	}
}

// Lower gives the bounds with those of a profile where they are lower. A profile
// never raises a bound; its zero and negative fields change nothing.
func (b Bounds) Lower(profile Bounds) Bounds {
	for _, f := range []struct {
		bound *int
		to    int
	}{
		{&b.EventBytes, profile.EventBytes},
		{&b.DeltaBytes, profile.DeltaBytes},
		{&b.IDLength, profile.IDLength},
		{&b.ArgumentsBytes, profile.ArgumentsBytes},
		{&b.ArgumentsDepth, profile.ArgumentsDepth},
		{&b.ResultBytes, profile.ResultBytes},
		{&b.RunEvents, profile.RunEvents},
		{&b.RunBytes, profile.RunBytes},
		{&b.OpenTools, profile.OpenTools},
		{&b.OpenTexts, profile.OpenTexts},
		{&b.OpenReasonings, profile.OpenReasonings},
		{&b.OpenNamespaces, profile.OpenNamespaces},
		{&b.NamespaceDepth, profile.NamespaceDepth},
		{&b.DetailsBytes, profile.DetailsBytes},
		{&b.DetailsKeys, profile.DetailsKeys},
	} {
		if f.to > 0 && f.to < *f.bound {
			*f.bound = f.to
		}
	}
	return b
}

// effective are the bounds that a zero or raised value really means.
func (b Bounds) effective() Bounds { return DefaultBounds().Lower(b) }
