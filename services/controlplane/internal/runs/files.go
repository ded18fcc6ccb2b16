package runs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"strconv"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// SaveTimeout bounds how long a file may take to come.
const SaveTimeout = 5 * time.Minute

// MaxFileBytes bounds a file that is stored by itself: 64 MiB.
const MaxFileBytes = blob.MaxBytes

// FileHead is what is known of a file before it comes.
type FileHead struct {
	Name     string
	MIMEType string
	// MaxBytes is the most that will come.
	MaxBytes int64
}

// StoredFile is a file in the file broker.
type StoredFile struct {
	ID        string
	BindingID string
	Epoch     uint32
	Name      string
	MIMEType  string
	Size      int64
	SHA256    [sha256.Size]byte
}

// SaveFile asks for a file to be stored for a conversation.
type SaveFile struct {
	AgentID        string
	ConversationID string
	FileHead

	Content io.Reader
}

// SaveFile stores a file for the caller's conversation, which begins with it where
// there was none. The caller may use the agent: that is checked before. Errors:
// not_found (agent); request_too_large; capacity; invalid_request; stale_lease
// where the conversation was cleared, or its sandbox given back, meanwhile, with
// nothing stored; and those of content, unchanged.
func (s *Service) SaveFile(ctx context.Context, caller Caller, req SaveFile) (StoredFile, error) {
	agent, err := s.cfg.Agents.Newest(ctx, req.AgentID)
	if err != nil {
		return StoredFile{}, err
	}
	rec, _, err := s.binding(ctx, caller, agent, req.ConversationID)
	if err != nil {
		return StoredFile{}, err
	}
	deadline := s.cfg.Now().Add(SaveTimeout).UTC()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return s.cfg.Files.Save(ctx, fence.Envelope{
		BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation,
		RequestID: "req_" + rand.Text(), IdempotencyKey: "file_" + rand.Text(), Deadline: deadline,
	}, req.FileHead, req.Content)
}

// File gives a file of a conversation of the caller: one that was stored for it,
// that a run wrote, or the whole result of a tool. Errors: not_found, also for
// another caller's.
func (s *Service) File(ctx context.Context, caller Caller, id string) (StoredFile, error) {
	const op = "runs.File"
	f, err := s.cfg.Files.Stat(ctx, id)
	if err != nil {
		return StoredFile{}, fault.From(err, op)
	}
	rec, err := s.cfg.Writer.Backend().Load(ctx, f.BindingID)
	switch {
	case errors.Is(err, binding.ErrNotFound):
		return StoredFile{}, fault.New(fault.NotFound, op)
	case err != nil:
		return StoredFile{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	case rec.Identity.Subject != caller.Subject || rec.Identity.Organization != caller.Organization:
		return StoredFile{}, fault.New(fault.NotFound, op)
	}
	return f, nil
}

// ReadFile sends n bytes of what File gave, from offset on. What was sent before an
// error is not to be believed.
func (s *Service) ReadFile(ctx context.Context, f StoredFile, offset, n int64, send func([]byte) error) error {
	return s.cfg.Files.Read(ctx, f, offset, n, send)
}

// stored finds the files that a start names by their ids; each is one of the
// conversation, in its epoch.
func (s *Service) stored(ctx context.Context, rec binding.Record, files []InlineFile) (map[string]StoredFile, error) {
	const op = "runs.stored"
	var out map[string]StoredFile
	for i, named := range files {
		if named.ID == "" {
			continue
		}
		f, err := s.cfg.Files.Stat(ctx, named.ID)
		switch {
		case err == nil && f.BindingID == rec.ID && f.Epoch == rec.Epoch:
			if out == nil {
				out = map[string]StoredFile{}
			}
			out[named.ID] = f
		case err == nil || fault.Is(err, fault.NotFound):
			return nil, fault.New(fault.NotFound, op, fault.Detail("files["+strconv.Itoa(i)+"].file_id: no such file in this conversation"))
		default:
			return nil, fault.From(err, op)
		}
	}
	return out, nil
}
