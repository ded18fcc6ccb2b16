package memory

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

// Errors of a Store. Everything else is a failure of the store, whose outcome may
// be unknown.
var (
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("memory: no such record")
	// ErrRevision says that the record has another revision than the expected one.
	ErrRevision = errors.New("memory: another revision stands")
	// ErrSource says that a source does not stand at its revision.
	ErrSource = errors.New("memory: another revision of a source stands")
	// ErrFull says that the namespace has as many records as it may.
	ErrFull = errors.New("memory: the namespace is full")
)

// Operation is what a change does.
type Operation string

// The operations.
const (
	OpPut    Operation = "put"
	OpDelete Operation = "delete"
	// OpExpire is a deletion because the record's time was over.
	OpExpire Operation = "expire"
)

// Change is one write.
type Change struct {
	// ID is the same for a repeat of the same write, and for no other.
	ID        string
	Operation Operation
	Namespace string
	// Record to store; its Revision and Origin.Previous are the store's to set. A
	// deletion has a key, a time and an origin only.
	Record Record
	// Expected revision; 0 where the record must not exist. A record that was
	// deleted or whose time is over at Record.UpdatedAt does not exist.
	Expected uint64
	// Replaces is the kind of the record at Expected; empty for none. Another one is
	// ErrRevision.
	Replaces Kind
	// Words that the record is found by.
	Words lexical.Document
}

// Entry is what the audit keeps of a change that was made: everything but the
// content.
type Entry struct {
	ID        string
	Operation Operation
	// Record without content. A deletion has no hash.
	Record Record
}

// Address names a record.
type Address struct {
	Namespace, Key string
	Revision       uint64
	Kind           Kind
}

// KeysPerRecord is how many keys a namespace may have for each record, with those
// whose record was deleted.
const KeysPerRecord = 4

// Store keeps records, and remembers every change that was made and where it came
// from. All methods are safe for concurrent use, also from several processes, and
// end with their context.
type Store interface {
	// Get reads one record of one namespace, or ErrNotFound; also for one that was
	// deleted, or whose time is over now.
	Get(ctx context.Context, namespace, key string, now time.Time) (Record, error)
	// Change compares the revision and stores the next one, in one atomic step after
	// which the audit has the change. A repeat of a change gives the revision that
	// it made, also after later changes, and changes nothing. ErrRevision;
	// ErrNotFound for the deletion of what does not exist; ErrSource; ErrFull where
	// a new record would be more than most in its namespace, or a new key more than
	// KeysPerRecord times that. Writers at the same moment may go beyond the bound
	// by as many as they are.
	Change(ctx context.Context, c Change, most int) (revision uint64, err error)
	// Find gives the records of one namespace that have at least one of the words
	// now, and, if there are any, what has to be known of all that stand. Hits have
	// the key for an ID. No kinds are all kinds.
	Find(ctx context.Context, namespace string, words []string, kinds []Kind, now time.Time) (lexical.Corpus, []lexical.Hit, error)
	// Unembedded gives up to limit records that stand now and have no vector of the
	// space, of one namespace or, where it is empty, of all, from behind after on in
	// an order of the store's.
	Unembedded(ctx context.Context, space, namespace string, after Address, now time.Time, limit int) ([]Address, error)
	// Embed keeps the vector of a record with it, in the place of any other. Where
	// another revision stands, or none, it does nothing. A vector goes with its
	// revision: what is put or deleted later has none.
	Embed(ctx context.Context, a Address, space string, vector []byte) error
	// Vectors shows each of the vectors of one namespace in a space whose record
	// stands now, one at a time. take must not keep its argument. No kinds are all
	// kinds.
	Vectors(ctx context.Context, namespace, space string, kinds []Kind, now time.Time, take func(key string, vector []byte)) error
	// Expired gives up to limit records whose time is over now.
	Expired(ctx context.Context, now time.Time, limit int) ([]Address, error)
	// Forget removes what is left of up to limit keys that were deleted before the
	// given moment, with their audit, and says of how many.
	Forget(ctx context.Context, before time.Time, limit int) (int, error)
	// Audit gives the changes of one key that the audit has, the oldest first.
	Audit(ctx context.Context, namespace, key string) ([]Entry, error)
}
