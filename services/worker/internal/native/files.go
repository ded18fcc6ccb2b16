package native

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// What the file tools show and write, in bytes, and how many files they list.
const (
	defaultRead = 16 << 10
	maxRead     = 48 << 10
	maxTurnFile = 8 << 20
	maxListed   = 400
	maxFileName = 255
)

// turnFolder is where the files of the turn stand in what the tools show. No
// manifest has such a path: those begin with skills/ or files/.
const turnFolder = "turn/"

// uploads are the handles that are left for new files.
type uploads struct {
	mu   sync.Mutex
	left []harness.Upload
}

// take gives a handle that a content fits.
func (u *uploads) take(bytes int) (harness.Upload, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, h := range u.left {
		if uint64(bytes) <= h.MaxBytes { //nolint:gosec // not negative
			u.left = append(u.left[:i:i], u.left[i+1:]...)
			return h, nil
		}
	}
	if len(u.left) == 0 {
		return harness.Upload{}, fault.New(fault.Capacity, "native.write_file", fault.Detail("this run can write no further file"))
	}
	return harness.Upload{}, fault.New(fault.RequestTooLarge, "native.write_file", fault.Detail("content: larger than a file of this run may be"))
}

func (u *uploads) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.left) > 0
}

func fileTools() []*tool {
	readable := func(r *run) bool { return len(r.files) > 0 || len(r.construction.Manifest) > 0 }
	return []*tool{
		{
			Offer: model.Offer{
				Name: "list_files", Schema: schema(`{"type": "object", "additionalProperties": false}`),
				Description: "Lists the files that came with this turn, and those of the agent and its skills.",
			},
			id: namespace + "list_files", kind: toolBuiltin, when: readable, act: listFiles,
		},
		{
			Offer: model.Offer{
				Name: "read_file", Description: "Reads a part of a text file that list_files names.",
				Schema: schema(`{"type": "object", "properties": {"path": {"type": "string"},
  "offset": {"type": "integer", "minimum": 0, "description": "In bytes."}, "limit": {"type": "integer", "minimum": 1, "maximum": 49152, "description": "In bytes."}},
  "required": ["path"], "additionalProperties": false}`),
			},
			id: namespace + "read_file", kind: toolBuiltin, when: readable, act: readFile,
		},
		{
			Offer: model.Offer{
				Name: "write_file", Description: "Gives the person a new text file.",
				Schema: schema(`{"type": "object", "properties": {"name": {"type": "string"}, "content": {"type": "string"}, "mime_type": {"type": "string", "default": "text/plain"}},
  "required": ["name", "content"], "additionalProperties": false}`),
			},
			id: namespace + "write_file", kind: toolBuiltin, when: func(r *run) bool { return r.uploads.any() }, act: writeFile,
		},
	}
}

type listed struct {
	Path     string `json:"path"`
	Name     string `json:"name,omitempty"`
	MIMEType string `json:"mime_type"`
	Size     uint64 `json:"size"`
}

func listFiles(_ context.Context, r *run, _ toolCall) (produced, error) {
	out := struct {
		Files []listed `json:"files"`
		More  int      `json:"more,omitempty"`
	}{Files: []listed{}}
	for i, f := range r.files {
		out.Files = append(out.Files, listed{fmt.Sprintf("%s%d", turnFolder, i+1), event.SanitizeText(f.DisplayName), event.SanitizeText(f.MIMEType), f.Size})
	}
	for _, f := range r.construction.Manifest {
		out.Files = append(out.Files, listed{Path: f.Path, MIMEType: event.SanitizeText(f.MIMEType), Size: f.Size})
	}
	if n := len(out.Files); n > maxListed {
		out.Files, out.More = out.Files[:maxListed], n-maxListed
	}
	return object(out)
}

type readArgs struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

type readPart struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Offset     int64  `json:"offset"`
	Text       string `json:"text"`
	NextOffset int64  `json:"next_offset,omitempty"`
}

func readFile(ctx context.Context, r *run, c toolCall) (produced, error) {
	args := readArgs{Limit: defaultRead}
	if err := into(c.Arguments, &args); err != nil {
		return produced{}, err
	}
	if args.Offset < 0 || args.Limit < 1 || args.Limit > maxRead {
		return produced{}, badArgument(fmt.Sprintf("offset: at least 0; limit: 1 to %d", maxRead))
	}
	raw, size, err := r.slice(ctx, args)
	if err != nil {
		return produced{}, err
	}
	text, ok := wholeRunes(raw, args.Offset+int64(len(raw)) == size)
	if !ok {
		return produced{}, fault.New(fault.InvalidRequest, "native.read_file", fault.Detail("path: not a text in UTF-8, or an offset within a character"))
	}
	part := readPart{Path: args.Path, Size: size, Offset: args.Offset, Text: event.SanitizeText(text)}
	if next := args.Offset + int64(len(text)); next < size {
		part.NextOffset = next
	}
	return object(part)
}

// wholeRunes leaves out a character that the end of a part cuts.
func wholeRunes(raw []byte, last bool) (string, bool) {
	for cut := 0; !last && cut < utf8.UTFMax && cut < len(raw); cut++ {
		if text := raw[:len(raw)-cut]; utf8.Valid(text) {
			return string(text), true
		}
	}
	return string(raw), utf8.Valid(raw)
}

type writeArgs struct {
	Name     string `json:"name"`
	Content  string `json:"content"`
	MIMEType string `json:"mime_type,omitempty"`
}

func writeFile(ctx context.Context, r *run, c toolCall) (produced, error) {
	args := writeArgs{MIMEType: "text/plain"}
	if err := into(c.Arguments, &args); err != nil {
		return produced{}, err
	}
	switch {
	case args.Name == "" || len(args.Name) > maxFileName || strings.ContainsAny(args.Name, "/\\") || strings.Trim(args.Name, ". ") == "":
		return produced{}, badArgument(fmt.Sprintf("name: 1 to %d bytes without a path", maxFileName))
	case !strings.HasPrefix(args.MIMEType, "text/") && args.MIMEType != "application/json":
		return produced{}, badArgument("mime_type: text/… or application/json")
	}
	u, err := r.uploads.take(len(args.Content))
	if err != nil {
		return produced{}, err
	}
	id, err := r.Files.Write(ctx, u, args.Name, args.MIMEType, []byte(args.Content))
	if err != nil {
		return produced{}, err
	}
	out, err := object(struct {
		FileID string `json:"file_id"`
		Name   string `json:"name"`
		Size   int    `json:"size"`
	}{id, args.Name, len(args.Content)})
	out.ref = id
	return out, err
}
