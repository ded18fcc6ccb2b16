package memory

import (
	"context"
	"crypto/sha256"
	"errors"
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
	// MaxRecords bounds one namespace.
	MaxRecords = 4096
)

// Errors of a Store. Everything else is a failure of the store, whose outcome may
// be unknown.
var (
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("memory: no such record")
	// ErrRevision says that the record has another revision than the expected one.
	ErrRevision = errors.New("memory: another revision stands")
	// ErrFull says that the namespace has as many records as it may.
	ErrFull = errors.New("memory: the namespace is full")
)

// Record is one memory.
type Record struct {
	Key         string
	Kind        Kind
	ContentType string
	Content     []byte
	// Revision is 1 for a record's first content and rises by one with each change.
	Revision  uint64
	SHA256    [sha256.Size]byte
	UpdatedAt time.Time
	Origin    Origin
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
}

// Change is one write.
type Change struct {
	// ID is the same for a repeat of the same write, and for no other.
	ID        string
	Namespace string
	// Record to store; its Revision and Origin.Previous are the store's to set.
	Record Record
	// Expected revision; 0 where the record must not exist yet.
	Expected uint64
}

// Store keeps records, and remembers every write that was made and where it came
// from. All methods are safe for concurrent use, also from several processes, and
// end with their context.
type Store interface {
	// Get reads one record of one namespace, or ErrNotFound.
	Get(ctx context.Context, namespace, key string) (Record, error)
	// Put compares the revision and stores the next one, in one atomic step that
	// also keeps the change's ID and origin. A repeat of a change gives the
	// revision that it made, also after later changes, and changes nothing.
	// ErrRevision; ErrFull where a new record would be more than most in its
	// namespace.
	Put(ctx context.Context, c Change, most int) (revision uint64, err error)
}
