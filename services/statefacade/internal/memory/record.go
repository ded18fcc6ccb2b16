package memory

import (
	"crypto/sha256"
	"time"
)

// Scope is whose memory it is.
type Scope string

// The scopes of the contract.
const (
	ScopeUser         Scope = "user"
	ScopeAgent        Scope = "agent"
	ScopeOrganization Scope = "organization"
)

// Kind is what a record is.
type Kind string

// The kinds of the contract.
const (
	KindSemantic Kind = "semantic"
	// KindEpisodicReference is a reference, never a copy of a transcript.
	KindEpisodicReference Kind = "episodic_reference"
	KindProcedural        Kind = "procedural"
)

// Content types that a record may have.
const (
	TypeText = "text/plain"
	TypeJSON = "application/json"
)

// Bounds of memory.
const (
	// MaxContentBytes bounds one record, MaxReferenceBytes one that is a
	// reference: what is longer is a copy.
	MaxContentBytes   = 64 << 10
	MaxReferenceBytes = 1 << 10
	// MaxRecords bounds one namespace, and so what a search looks at.
	MaxRecords = 4096
	// MaxSources bounds what one record is made of.
	MaxSources = 16
)

// Record is one memory.
type Record struct {
	Key         string
	Kind        Kind
	ContentType string
	Content     []byte
	// Revision is 1 for the first content under a key and rises by one with each
	// change, also over a deletion: no two contents have the same.
	Revision  uint64
	SHA256    [sha256.Size]byte
	UpdatedAt time.Time
	// Retention is the operator's profile, and ExpiresAt what followed from it when
	// the record was written; zero for what is kept until it is deleted.
	Retention string
	ExpiresAt time.Time
	// Redactions is how many secrets were cut out of the content.
	Redactions int
	Origin     Origin
}

// Origin is where the content of a revision came from.
type Origin struct {
	BindingID  string
	Epoch      uint32
	Generation uint32
	RunID      string
	// Writer is the SPIFFE ID of the sandbox.
	Writer string
	// Previous revision; 0 for a new record.
	Previous uint64
	// Sources are the records that it was made of.
	Sources []Source
	// ApprovedCall is the tool call that a person approved; empty where nobody was
	// asked.
	ApprovedCall string
}

// Source is a revision of a record of the same namespace.
type Source struct {
	Key      string `json:"key"`
	Revision uint64 `json:"revision"`
}
