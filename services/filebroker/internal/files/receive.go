package files

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/filebroker/internal/digest"
)

// dropBound is how long removing what did not become visible may take, also
// after the caller has gone.
const dropBound = 5 * time.Second

// staged is an object on its way in.
type staged struct {
	s      *Service
	object Object
}

// stage reserves room, and stores the content where nobody can see it. What it
// leaves in an error's case, nobody can see either. judge looks at how the content
// begins.
func (s *Service) stage(ctx context.Context, e fence.Envelope, info Info, parts blob.Parts, judge func(*sniffer, Info) (Info, error)) (staged, error) {
	return s.stageAs(ctx, e, info, func(w io.Writer) (Info, error) {
		var start sniffer
		if err := receive(ctx, io.MultiWriter(w, &start), info, parts); err != nil {
			return Info{}, err
		}
		return judge(&start, info)
	})
}

// stageAs is stage for a content that fill writes, and that is known for good only
// once it has been written. It is not larger than info says.
func (s *Service) stageAs(ctx context.Context, e fence.Envelope, info Info, fill func(io.Writer) (Info, error)) (staged, error) {
	st, err := s.reserve(ctx, e, info)
	if err != nil {
		return staged{}, err
	}
	known, err := s.write(ctx, st.object, fill)
	if err == nil && known != st.object.Info {
		if err = s.catalogue.SealObject(ctx, st.object.ID, known); err != nil {
			err = failed(ctx, err, "files.stage")
		}
	}
	if err != nil {
		st.drop(ctx)
		return staged{}, err
	}
	st.object.Info = known
	return st, nil
}

// reserve makes the entry of an object that has no content yet.
func (s *Service) reserve(ctx context.Context, e fence.Envelope, info Info) (staged, error) {
	o := Object{ID: "obj_" + rand.Text(), BindingID: e.BindingID, Epoch: e.Epoch, RunID: e.RunID, Info: info}
	quota := Quota{Bytes: s.quota, Objects: MaxObjects, Now: s.now()}
	switch err := s.catalogue.StageObject(ctx, o, e.Deadline, quota); {
	case errors.Is(err, ErrQuota):
		return staged{}, fault.New(fault.Capacity, "files.stage", fault.Detail("quota: the files of this conversation use it up"))
	case err != nil:
		return staged{}, failed(ctx, err, "files.stage")
	}
	return staged{s: s, object: o}, nil
}

// write writes a content, and keeps it only if fill says what it is.
func (s *Service) write(ctx context.Context, o Object, fill func(io.Writer) (Info, error)) (Info, error) {
	return s.writeBlob(ctx, o.blobKey(), fill)
}

func (s *Service) writeBlob(ctx context.Context, key string, fill func(io.Writer) (Info, error)) (Info, error) {
	w, err := s.blobs.Create(ctx, key)
	if err != nil {
		return Info{}, failed(ctx, err, "files.write")
	}
	info, err := fill(w)
	if err != nil {
		if aerr := w.Abort(); aerr != nil {
			s.logger.WarnContext(ctx, "an incomplete blob was left behind", "error", aerr.Error())
		}
		return Info{}, err
	}
	if err := w.Commit(); err != nil {
		return Info{}, failed(ctx, err, "files.write")
	}
	return info, nil
}

// receive copies the content to w and checks size and digest.
func receive(ctx context.Context, w io.Writer, info Info, parts blob.Parts) error {
	if err := blob.Receive(w, info.Content, parts); err != nil {
		return received(ctx, err)
	}
	return nil
}

// received is the fault of a content that did not arrive as it was announced.
func received(ctx context.Context, err error) error {
	const op = "files.receive"
	var broken *blob.WriteError
	switch {
	case errors.Is(err, blob.ErrTooLong):
		return fault.New(fault.RequestTooLarge, op, fault.Detail("chunk: more than was announced"))
	case errors.Is(err, blob.ErrTooShort):
		return fault.New(fault.InvalidRequest, op, fault.Detail("chunk: less than was announced"))
	case errors.Is(err, blob.ErrDigest):
		return fault.New(fault.InvalidRequest, op, fault.Detail("info.sha256: not that of the content"))
	case errors.As(err, &broken):
		return failed(ctx, err, op)
	}
	return interrupted(ctx, err, op)
}

// interrupted is the fault of a stream that did not come to its end. When the
// time of the request is over, that is the reason, whatever broke first.
func interrupted(ctx context.Context, err error, op string) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx), op)
	}
	return fault.From(err, op)
}

// drop removes what did not become visible: first the entry, which decides, and
// the blob only if that was still staged. What is dropped can become visible no
// more, and what became visible stays.
func (st staged) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropBound)
	defer cancel()
	dropped, err := st.s.catalogue.DropObject(ctx, st.object.ID)
	if err == nil && dropped {
		err = st.s.blobs.Delete(ctx, st.object.blobKey())
	}
	if err != nil {
		st.s.logger.WarnContext(ctx, "an object that did not become visible was left behind", "error", err.Error())
	}
}

// argsDigest tells a file from another one.
func (i Info) argsDigest(where string) string {
	return digest.Of(where, string(i.SHA256[:]), i.MIME, i.Name, strconv.FormatInt(i.Size, 10))
}

// clean checks what the schema cannot, and makes the name a display name.
func (i Info) clean(most int64) (Info, error) {
	switch {
	case i.Size < 0:
		return i, fault.New(fault.InvalidRequest, "files.info", fault.Detail("info.size: not negative"))
	case i.Size > min(most, MaxObjectBytes):
		return i, fault.New(fault.RequestTooLarge, "files.info", fault.Detail("info.size: more than the handle or the service allows"))
	}
	i.Name = CleanName(i.Name)
	return i, nil
}
