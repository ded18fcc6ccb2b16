package native

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// How much of the text files of a turn is shown to the model, in bytes.
const (
	maxFileText  = 128 << 10
	maxFilesText = 256 << 10
)

// userText is the message with the text files that came with it. Other files
// are named, so that the model does not think it has seen them.
func (t *turn) userText(ctx context.Context) (string, error) {
	var b strings.Builder
	b.WriteString(t.in.Message)
	room := maxFilesText
	for _, f := range t.in.Files {
		if reason := notShown(f, room); reason != "" {
			fmt.Fprintf(&b, "\n\n[File %q of type %s, %d bytes: %s]", f.DisplayName, f.MIMEType, f.Size, reason)
			if err := t.warn(ctx, "file_not_shown", "A file of this turn is not shown to the model: "+reason+"."); err != nil {
				return "", err
			}
			continue
		}
		data, err := t.Files.Read(ctx, f, min(room, maxFileText))
		if err != nil {
			return "", err
		}
		if !utf8.Valid(data) {
			return "", fault.New(fault.InvalidRequest, "native.files", fault.Detail("files: a text file that is not UTF-8"))
		}
		room -= len(data)
		fmt.Fprintf(&b, "\n\n[File %q]\n%s", f.DisplayName, event.SanitizeText(string(data)))
	}
	return b.String(), nil
}

// notShown is why a file is not shown, or "".
func notShown(f harness.File, room int) string {
	text := strings.HasPrefix(f.MIMEType, "text/") || f.MIMEType == "application/json"
	switch {
	case !text:
		return "no text"
	case f.Size > uint64(min(max(room, 0), maxFileText)):
		return "too large to be shown"
	default:
		return ""
	}
}
