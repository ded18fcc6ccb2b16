package files

import (
	"context"
	"errors"
	"slices"
	"time"

	"cofferdam.dev/pkg/blob"
)

// Bounds of files.
const (
	// MaxObjectBytes bounds one object.
	MaxObjectBytes = blob.MaxBytes
	// MaxObjects bounds the objects of one binding.
	MaxObjects = 4096
	// MaxHandlesPerRun bounds the handles that one run may be given.
	MaxHandlesPerRun = 256
)

// Errors of the stores. Everything else is a failure of the store, whose outcome
// may be unknown.
var (
	// ErrNoObject says that there is no such object, or that it is not visible.
	ErrNoObject = errors.New("files: no such object")
	// ErrNoHandle says that there is no such handle, or that it was never
	// confirmed.
	ErrNoHandle = errors.New("files: no such handle")
	// ErrNoCompletion says that nothing was completed there yet.
	ErrNoCompletion = errors.New("files: nothing was completed")
	// ErrNoUpload says that nothing was uploaded there in parts.
	ErrNoUpload = errors.New("files: no such upload")
	// ErrQuota says that the binding has no room for the object.
	ErrQuota = errors.New("files: the quota of the binding is used up")
	// ErrFull says that the run has as many handles as it may.
	ErrFull = errors.New("files: the run has too many handles")
)

// Info describes a file.
type Info struct {
	blob.Content

	MIME string
	// Name is for display only; see [CleanName].
	Name string
}

// Object is one stored file. It belongs to the conversation, so that a later
// lease of it may be given a handle for it.
type Object struct {
	// ID is random and tells nothing.
	ID        string
	BindingID string
	Epoch     uint32
	// RunID of the run that it came with.
	RunID string
	Info  Info
}

// Quota is what one binding may keep. What was staged counts until its time is
// over, so that what a crash left behind does not count for ever.
type Quota struct {
	Bytes   int64
	Objects int
	// Now is the moment at which the question is asked.
	Now time.Time
}

// Completion is the one object that took a slot: an upload handle, or the key of
// a put. Of several attempts one completes.
type Completion struct {
	Slot string
	// Key is the idempotency key of the attempt that took it, and ArgsDigest tells
	// the same request from another one under it.
	Key, ArgsDigest string
	ObjectID        string
}

// Objects is the catalogue of objects. Its methods are safe for concurrent use,
// also from several processes, and end with their context.
type Objects interface {
	// StageObject reserves room for an object that nobody can see yet, until the
	// given time. One of a run is referred to from its beginning. ErrQuota.
	StageObject(ctx context.Context, o Object, until time.Time, q Quota) error
	// SealObject writes what a staged object is known by, once that is known; it is
	// not larger than what was reserved. ErrNoObject where it is not staged.
	SealObject(ctx context.Context, id string, i Info) error
	// Complete makes the staged object of c visible where nothing has taken the
	// slot, in one atomic step, and gives the completion that stands afterwards:
	// compare its ObjectID with one's own. ErrNoObject where the slot is free and
	// the object is not staged any more.
	Complete(ctx context.Context, c Completion) (stands Completion, err error)
	// Completed gives the completion of a slot, or ErrNoCompletion.
	Completed(ctx context.Context, slot string) (Completion, error)
	// DropObject removes an object that is staged, and leaves a visible one alone.
	// dropped says whether it removed one.
	DropObject(ctx context.Context, id string) (dropped bool, err error)
	// Object gives a visible object, or ErrNoObject.
	Object(ctx context.Context, id string) (Object, error)
}

// Direction is what a handle allows.
type Direction string

// The two directions.
const (
	DirectionDownload Direction = "download"
	DirectionUpload   Direction = "upload"
)

// Handle lets one run, under one generation, read one object or the contents of its
// agent, or make one upload. "ID.N" reads the Nth of the contents, from 0 on.
type Handle struct {
	// ID is random and unguessable; it is the handle.
	ID         string
	BindingID  string
	Epoch      uint32
	Generation uint32
	RunID      string
	Direction  Direction
	// ObjectID of a download.
	ObjectID string
	// Contents of a download that has no object: the SHA-256 of each, one after another.
	Contents string
	// MaxBytes of an upload.
	MaxBytes int64
	// SingleUse of a download: the first request uses it up.
	SingleUse bool
	// Types that an upload may have, such as image/png or image/*, separated by
	// spaces; none is any.
	Types string
	// ExpiresAt is never after the deadline of the run.
	ExpiresAt time.Time
	// Issue is the same for a repeat of the request that made the handle, and
	// ArgsDigest tells it from another request under its key.
	Issue, ArgsDigest string
}

// Handles is the catalogue of handles. Like a snapshot of thread state a handle
// is written in two steps, with a look at committed state between them. Its
// methods are safe for concurrent use, also from several processes, and end with
// their context.
type Handles interface {
	// StageHandle keeps a handle that opens nothing yet where none of its Issue
	// stands, and gives the one that stands afterwards. ErrFull where the run has
	// most handles.
	StageHandle(ctx context.Context, h Handle, most int) (stands Handle, err error)
	// ConfirmHandle makes a staged handle open. A repeat is harmless. ErrNoHandle.
	ConfirmHandle(ctx context.Context, id string) error
	// DropHandle removes a handle that was not confirmed. A repeat is harmless.
	DropHandle(ctx context.Context, id string) error
	// Handle gives a confirmed handle, or ErrNoHandle.
	Handle(ctx context.Context, id string) (Handle, error)
	// UseHandle writes who used a handle where nobody has, and gives who stands
	// afterwards. ErrNoHandle.
	UseHandle(ctx context.Context, id, by string) (stands string, err error)
}

// Part of an upload.
type Part struct {
	blob.Content

	// ID is random: two attempts at one part do not meet.
	ID string
}

// PartialUpload is an upload of which some parts are there. Its object is staged.
type PartialUpload struct {
	Handle   string
	ObjectID string
	// BindingID of the object.
	BindingID string
	// ArgsDigest tells the object from another one.
	ArgsDigest string
	Info       Info
	Parts      []Part
	// ExpiresAt is that of the handle.
	ExpiresAt time.Time
}

// Next is where the next part begins.
func (u PartialUpload) Next() (offset int64) {
	for _, p := range u.Parts {
		offset += p.Size
	}
	return offset
}

// With gives the upload with one part more.
func (u PartialUpload) With(p Part) PartialUpload {
	u.Parts = append(slices.Clone(u.Parts), p)
	return u
}

// Uploads is the catalogue of uploads that come in parts. Its methods are safe for
// concurrent use, also from several processes, and end with their context.
type Uploads interface {
	// BeginUpload keeps an upload without parts where its handle has none, and gives
	// the one that stands afterwards.
	BeginUpload(ctx context.Context, u PartialUpload) (stands PartialUpload, err error)
	// PartialUpload gives that of a handle, or ErrNoUpload.
	PartialUpload(ctx context.Context, handle string) (PartialUpload, error)
	// AppendPart adds a part behind u's, where the upload has no others, and gives
	// the one that stands afterwards. ErrNoUpload.
	AppendPart(ctx context.Context, u PartialUpload, p Part) (stands PartialUpload, err error)
	// EndUpload forgets an upload. A repeat is harmless.
	EndUpload(ctx context.Context, handle string) error
}

// Entry is an object as the collection sees it.
type Entry struct {
	Object

	// Visible is false for a staged one. It may be visible all the same; DropObject
	// decides.
	Visible bool
	// Referenced says that a run has brought it, or was given it.
	Referenced  bool
	CreatedAt   time.Time
	StagedUntil time.Time
}

// Collection is what finds and removes what nobody needs. Its methods are safe for
// concurrent use, also from several processes, and end with their context.
type Collection interface {
	// Entries gives objects by id, staged ones too, from the one after the id on.
	Entries(ctx context.Context, after string, limit int) ([]Entry, error)
	// Known reports whether there is an entry of this id.
	Known(ctx context.Context, id string) (bool, error)
	// Refer says for good that something refers to an object. ErrNoObject.
	Refer(ctx context.Context, id string) error
	// Retire removes a visible object; with unused only where nothing refers to it.
	// Of it and Refer one wins.
	Retire(ctx context.Context, id string, unused bool) (retired bool, err error)
	// ExpiredUploads gives uploads whose handle expired before the time.
	ExpiredUploads(ctx context.Context, before time.Time, limit int) ([]PartialUpload, error)
	// ForgetExpired removes handles that expired before the time, and what else is
	// needed no longer than they are.
	ForgetExpired(ctx context.Context, before time.Time) error
}

// Catalogue knows every object, content, handle and upload.
type Catalogue interface {
	Objects
	Contents
	Handles
	Uploads
	Collection
}
