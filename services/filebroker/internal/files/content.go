package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
)

// Bounds of what agents have.
const (
	// MaxContentBytes bounds one content.
	MaxContentBytes = 8 << 20
	// MaxHandleContents bounds the contents of one handle: the skills and the files of
	// an agent.
	MaxHandleContents = 512
)

// ErrNoContent says that there is no such content.
var ErrNoContent = errors.New("files: no such content")

// Content of an agent's skills and files. It is known by its SHA-256 alone, belongs to
// no conversation, and counts for the quota of none.
type Content struct {
	blob.Content

	// BlobID is random: of several attempts at one content none writes over another's
	// blob.
	BlobID string
	// PutAt is when it was put last.
	PutAt time.Time
}

// blobKey names the content too, so that who finds the blob finds its entry.
func (c Content) blobKey() string {
	return contentsPrefix + hex.EncodeToString(c.SHA256[:]) + "/" + c.BlobID
}

func (c Content) info() Info { return Info{Content: c.Content, MIME: octetStream, Name: noName} }

// Contents is the catalogue of contents. Its methods are safe for concurrent use, also
// from several processes, and end with their context.
type Contents interface {
	// AddContent keeps a content, whose blob nobody else has, where none of its SHA-256
	// stands, and gives the one that stands afterwards, which was put at the later of both
	// times. Nothing refers to a new one.
	AddContent(ctx context.Context, c Content) (stands Content, err error)
	// PutAgain gives the one that stands, which was put at the later of the time and its
	// own, or ErrNoContent.
	PutAgain(ctx context.Context, sum [sha256.Size]byte, at time.Time) (Content, error)
	// Content gives one, or ErrNoContent.
	Content(ctx context.Context, sum [sha256.Size]byte) (Content, error)
	// ReferContents says for good that something refers to each of them, as far as they
	// are there. ErrNoContent where one is not.
	ReferContents(ctx context.Context, sums [][sha256.Size]byte) error
	// UnusedContents gives those that nothing refers to, and that were put before the
	// time.
	UnusedContents(ctx context.Context, before time.Time, limit int) ([]Content, error)
	// RetireContent removes one that nothing refers to, if it was put before the time. Of
	// it and ReferContents one wins.
	RetireContent(ctx context.Context, sum [sha256.Size]byte, before time.Time) (retired bool, err error)
}

// PutContent stores a content of an agent, for the control plane. What is there already
// is not stored again: what comes is only checked. It stays for as long as something
// refers to it, and for a while after each put.
//
// Faults: request_too_large; invalid_request where size or digest are not the
// content's; persistence_failed.
func (s *Service) PutContent(ctx context.Context, c blob.Content, parts blob.Parts) error {
	const op = "files.PutContent"
	if c.Size < 0 || c.Size > MaxContentBytes {
		return fault.New(fault.RequestTooLarge, op, fault.Detail("info.size: at most 8 MiB"))
	}
	// From here on a collection leaves one that is there alone.
	switch _, err := s.catalogue.PutAgain(ctx, c.SHA256, s.now()); {
	case err == nil:
		return receive(ctx, io.Discard, Info{Content: c}, parts)
	case !errors.Is(err, ErrNoContent):
		return failed(ctx, err, op)
	}
	own := Content{Content: c, BlobID: rand.Text()}
	_, err := s.writeBlob(ctx, own.blobKey(), func(w io.Writer) (Info, error) {
		return Info{}, receive(ctx, w, Info{Content: c}, parts)
	})
	if err != nil {
		return err
	}
	own.PutAt = s.now()
	stands, err := s.catalogue.AddContent(ctx, own)
	switch {
	case err != nil: // whether it stands is not known; a blob that nobody knows is collected
		return failed(ctx, err, op)
	case stands.BlobID != own.BlobID: // another attempt was first
		s.dropBlobs(ctx, own.blobKey())
	}
	return nil
}

// KeepContent says that a version of an agent names a content: it stays then, as such
// versions do. Faults: not_found, also for another size; persistence_failed.
func (s *Service) KeepContent(ctx context.Context, c blob.Content) error {
	const op = "files.KeepContent"
	stands, err := s.catalogue.Content(ctx, c.SHA256)
	if err == nil && stands.Size != c.Size {
		err = ErrNoContent
	}
	if err == nil {
		err = s.catalogue.ReferContents(ctx, [][sha256.Size]byte{c.SHA256})
	}
	switch {
	case errors.Is(err, ErrNoContent):
		return fault.New(fault.NotFound, op, fault.Detail("content: none of this SHA-256 and size is kept"))
	case err != nil:
		return failed(ctx, err, op)
	}
	return nil
}

// collectContents removes contents that nothing came to refer to. What stands in a
// version of an agent, or was ever in a handle, stays.
func (s *Service) collectContents(ctx context.Context, now time.Time, c *Collected) error {
	before := now.Add(-s.collectAfter)
	for {
		unused, err := s.catalogue.UnusedContents(ctx, before, collectPage)
		if err != nil || len(unused) == 0 {
			return err
		}
		for _, u := range unused {
			retired, err := s.catalogue.RetireContent(ctx, u.SHA256, before)
			if err != nil {
				return err
			}
			if !retired { // somebody put it again, or refers to it
				continue
			}
			c.Contents++
			if err := s.blobs.Delete(ctx, u.blobKey()); err != nil {
				return err
			}
		}
	}
}

// knownContent reports whether a blob is that of a content.
func (s *Service) knownContent(ctx context.Context, key string) (bool, error) {
	sum, id, _ := strings.Cut(strings.TrimPrefix(key, contentsPrefix), "/")
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != sha256.Size {
		return false, nil //nolint:nilerr // no content has such a name
	}
	c, err := s.catalogue.Content(ctx, [sha256.Size]byte(raw))
	if errors.Is(err, ErrNoContent) {
		return false, nil
	}
	return c.BlobID == id, err
}

// joined is how a handle keeps its contents, and split takes them apart.
func joined(sums [][sha256.Size]byte) string {
	var out strings.Builder
	for _, sum := range sums {
		out.Write(sum[:])
	}
	return out.String()
}

func split(contents string) (out [][sha256.Size]byte) {
	for sum := range slices.Chunk([]byte(contents), sha256.Size) {
		out = append(out, [sha256.Size]byte(sum))
	}
	return out
}

// nth takes the name that a worker has for a content apart: the handle, and which of its
// contents. It gives -1 for what is a handle as a whole.
func nth(name string) (handle string, n int) {
	handle, digits, ok := strings.Cut(name, ".")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || strconv.Itoa(n) != digits {
		return name, -1
	}
	return handle, n
}

// downloadContent sends a content of a handle, or a range of it.
func (s *Service) downloadContent(ctx context.Context, h Handle, n int, r Range, send Reader) error {
	c, err := s.catalogue.Content(ctx, split(h.Contents)[n])
	if err != nil {
		return failed(ctx, err, "files.downloadContent")
	}
	return s.sendBlob(ctx, c.blobKey(), c.info(), r, send)
}
