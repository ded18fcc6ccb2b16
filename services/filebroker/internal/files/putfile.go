package files

import (
	"context"
	"crypto/rand"
	"io"
	"strconv"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/filebroker/internal/digest"
)

// Head is what is known of a file before it comes.
type Head struct {
	MIME string
	// Name is for display only; see [CleanName].
	Name string
	// MaxBytes is the most that will come; so much is reserved.
	MaxBytes int64
}

// PutFile stores a file that a caller sends for a conversation, for the control
// plane. What it is known by comes after its content: parts gives the content, and
// then end what was sent, or false where the sender did not come to that. It
// becomes visible when all of it is there and is what was sent, and the lease is
// still the committed one.
//
// Faults: stale_lease with nothing visible; invalid_request where size or digest
// are not the content's, or its type is not what the head says;
// request_too_large; capacity where the binding has no room; persistence_failed.
func (s *Service) PutFile(ctx context.Context, g fence.Grant, head Head, parts blob.Parts, end func() (blob.Content, bool)) (Object, error) {
	const op = "files.PutFile"
	if err := g.Validate(); err != nil {
		return Object{}, err
	}
	e := g.Envelope()
	e.RunID = "" // it belongs to the conversation, and nobody has asked for a run
	info, err := Info{Content: blob.Content{Size: head.MaxBytes}, MIME: head.MIME, Name: head.Name}.clean(MaxObjectBytes)
	if err != nil {
		return Object{}, err
	}
	fill := func(w io.Writer) (Info, error) {
		var start sniffer
		got, err := blob.Measure(io.MultiWriter(w, &start), head.MaxBytes, parts)
		if err != nil {
			return Info{}, received(ctx, err)
		}
		switch sent, whole := end(); {
		case !whole:
			return Info{}, fault.New(fault.InvalidRequest, op, fault.Detail("end: missing, the file did not arrive whole"))
		case got != sent:
			return Info{}, fault.New(fault.InvalidRequest, op, fault.Detail("end: not the size and SHA-256 of the content"))
		}
		info.Content = got
		return start.confirm(info)
	}
	st, err := s.stageAs(ctx, e, info, fill)
	if err != nil {
		return Object{}, err
	}
	if _, err := s.guard.AdmitLease(ctx, e); err != nil {
		st.drop(ctx)
		return Object{}, err
	}
	// Its slot is its own: the id that the sender gets is the only name it has.
	_, err = s.catalogue.Complete(ctx, Completion{
		Slot: "file:" + digest.Of(e.BindingID, strconv.FormatUint(uint64(e.Epoch), 10), e.IdempotencyKey, rand.Text()),
		Key:  e.IdempotencyKey, ArgsDigest: st.object.Info.argsDigest("file"), ObjectID: st.object.ID,
	})
	if err != nil { // if it is visible, nobody knows its id
		st.drop(ctx)
		return Object{}, failed(ctx, err, op)
	}
	return st.object, nil
}
