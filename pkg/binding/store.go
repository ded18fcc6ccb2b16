package binding

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"cofferdam.dev/pkg/fence"
)

// Errors of a Backend. Everything else is a failure of the store itself: its
// outcome may be unknown, and it is settled by reading back.
var (
	// ErrNotFound says that there is no such document.
	ErrNotFound = errors.New("binding: not found")
	// ErrFenced says that the filter of a write did not match: the record has
	// another epoch, generation or run.
	ErrFenced = errors.New("binding: fenced")
)

// Filter is what a write names besides the binding. The back end compares it in
// the write itself. A nil field is not compared.
type Filter struct {
	Epoch      *uint32
	Generation *uint32
	// RunID compares the active run; a pointer to "" asks for no active run.
	RunID *string
}

// Backend keeps records, chunks, run documents and ledger rows. Reads are
// majority reads and writes are majority writes where the store has replicas.
// All methods are safe for concurrent use, also from several processes, and end
// with their context.
type Backend interface {
	Records
	Log
	RunDocuments
	Ledger
	Close() error
}

// Records are the committed records.
type Records interface {
	// Insert adds a record where none of its id stands, and returns the one that
	// stands afterwards; inserted tells whose it is.
	Insert(ctx context.Context, r Record) (stands Record, inserted bool, err error)
	// Load reads one record, or ErrNotFound.
	Load(ctx context.Context, bindingID string) (Record, error)
	// Update applies change to the record and writes the result in one atomic
	// step, where the filter matches: ErrFenced where it does not, ErrNotFound
	// where there is no record. change gets a copy of its own, must be pure, and
	// may be called several times. Its error is returned unchanged and nothing is
	// written. A write that was sent long ago and arrives late must not undo a
	// later one: it matches the very record that change saw, or nothing.
	Update(ctx context.Context, bindingID string, f Filter, change func(*Record) error) (Record, error)
	// Committed reads what Record.Committed says of the record, without reading all
	// of it, or ErrNotFound. Every fenced request begins with it.
	Committed(ctx context.Context, bindingID string) (fence.Committed, error)
	// FindRun gives the binding whose run, or ending, holds the run id, or
	// ErrNotFound.
	FindRun(ctx context.Context, runID string) (bindingID string, err error)
	// List pages through records in the order of their ids. With busy only those
	// that have a run or something ending.
	List(ctx context.Context, after string, limit int, busy bool) ([]Record, error)
}

// Chunk is an immutable part of a run's log, keyed by run and first sequence.
type Chunk struct {
	RunID   string
	First   uint64
	Batches []Batch
}

// Next is the sequence after the last event of the chunk.
func (c Chunk) Next() uint64 {
	if len(c.Batches) == 0 {
		return c.First
	}
	return c.Batches[len(c.Batches)-1].Next()
}

// Log has the parts of event logs that left the records.
type Log interface {
	// PutChunk inserts a chunk where none of its key stands, and returns the one
	// that stands afterwards.
	PutChunk(ctx context.Context, c Chunk) (stands Chunk, err error)
	// Chunks reads the chunks of a run that hold events from sequence from on, in
	// order, at most limit.
	Chunks(ctx context.Context, runID string, from uint64, limit int) ([]Chunk, error)
}

// RunDocument is what remains of a run after its end.
type RunDocument struct {
	RunID         string          `json:"run_id"`
	BindingID     string          `json:"binding_id"`
	Epoch         uint32          `json:"epoch"`
	Generation    uint32          `json:"generation"`
	RequestID     string          `json:"request_id"`
	KeyDigest     string          `json:"key_digest"`
	ContentDigest string          `json:"content_digest"`
	AskedBy       string          `json:"asked_by,omitempty"`
	Carried       []Carried       `json:"carried,omitempty"`
	DelegatedBy   *Delegation     `json:"delegated_by,omitempty"`
	StartedAt     time.Time       `json:"started_at"`
	EndedAt       time.Time       `json:"ended_at"`
	End           End             `json:"end"`
	Events        uint64          `json:"events"`
	HeadRevision  uint64          `json:"head_revision"`
	SideEffects   string          `json:"side_effects"`
	Terminal      json.RawMessage `json:"terminal"`

	// Forgotten says that the log of the run is not kept any more. The back end knows; it
	// is nothing that is put.
	Forgotten bool `json:"-"`
}

// EndedRun is a run whose log is kept.
type EndedRun struct {
	RunID, BindingID string
	EndedAt          time.Time // in microseconds
}

// RunDocuments are the documents of ended runs.
type RunDocuments interface {
	// PutRun inserts the document where none of its id stands. A repeat is harmless.
	PutRun(ctx context.Context, d RunDocument) error
	// LoadRun reads one, or ErrNotFound.
	LoadRun(ctx context.Context, runID string) (RunDocument, error)
	// EndedRuns pages through the runs whose log is kept and that ended before the time,
	// in the order in which they ended and then of their ids, from the one after a run on.
	EndedRuns(ctx context.Context, before time.Time, after EndedRun, limit int) ([]EndedRun, error)
	// ForgetLog removes the chunks of a run that has a document. The document says that
	// they are forgotten before the first one is gone, and EndedRuns gives the run until
	// the last one is. A repeat is harmless.
	ForgetLog(ctx context.Context, runID string) error
}

// RowState is what is known of an effect.
type RowState string

// The states of a ledger row.
const (
	// RowDispatched may have begun. Left like this, its outcome is unknown.
	RowDispatched RowState = "dispatched"
	// RowNotDispatched did not begin and never will.
	RowNotDispatched RowState = "not_dispatched"
	// RowConcluded has an outcome.
	RowConcluded RowState = "concluded"
	// RowRevoked was taken by whoever ended or replaced the run.
	RowRevoked RowState = "revoked"
)

// RowKey is unique in the ledger.
type RowKey struct {
	BindingID string
	Epoch     uint32
	RunID     string
	Key       string
}

// Row is the ledger's row of one effect.
type Row struct {
	RowKey
	Generation uint32
	// Nonce of the attempt that inserted the row: only one's own is the
	// permission to act.
	Nonce string
	State RowState
	// Kind of effect, such as "tool" or "memory.put".
	Kind string
	// ArgsDigest tells the same call from another one under the same key.
	ArgsDigest string
	// Outcome is what the effect answered, as its kind encodes it; at most
	// MaxOutcomeBytes.
	Outcome []byte
	// At is when the row was inserted.
	At time.Time
}

// Ledger has one row for each effect.
type Ledger interface {
	// InsertRow inserts where no row of the key stands, and returns the row that
	// stands afterwards: compare its nonce with one's own.
	InsertRow(ctx context.Context, r Row) (stands Row, err error)
	// SettleRow moves the row with this nonce out of dispatched, once. settled is
	// false where another state stands already.
	SettleRow(ctx context.Context, key RowKey, nonce string, to RowState, outcome []byte) (settled bool, err error)
	// LoadRow reads one row, or ErrNotFound.
	LoadRow(ctx context.Context, key RowKey) (Row, error)
	// Rows reads all rows of a run, in the order of their keys and without their
	// outcomes: whoever concludes a run needs the states of all and the bodies of none.
	Rows(ctx context.Context, bindingID string, epoch uint32, runID string) ([]Row, error)
}
