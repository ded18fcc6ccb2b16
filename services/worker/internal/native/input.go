package native

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/contextblock"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// How much of the files of a turn is shown to the model, in bytes: of texts, and
// of images and documents, which a request carries half as large again.
const (
	maxFileText  = 128 << 10
	maxFilesText = 256 << 10
	maxFileData  = 3 << 20
	maxFilesData = 4 << 20
)

// cannotBeShown is what a model reads of a file that it cannot take.
const cannotBeShown = "cannot be shown to this model"

// message is what the person said, with the files and the client context that came
// with it. What is not shown is named, so that the model does not think it has seen it.
func (r *run) message(ctx context.Context, in harness.Turn) (model.Message, error) {
	m := model.Message{Role: model.User}
	var text strings.Builder
	text.WriteString(in.Message)
	texts, data := maxFilesText, maxFilesData
	for _, f := range in.Files {
		kind := kindOf(f.MIMEType)
		room := &data
		most := maxFileData
		if kind == model.Text {
			room, most = &texts, maxFileText
		}
		if reason := r.notShown(f, kind, min(*room, most)); reason != "" {
			text.WriteString(note(f.DisplayName, f.MIMEType, f.Size, reason))
			w := event.Warning{Code: "file_not_shown", Message: "A file of this turn is not shown to the model: it " + reason + "."}
			if err := r.emit.Emit(ctx, event.Draft{Data: w}); err != nil {
				return m, err
			}
			continue
		}
		content, err := r.Files.Read(ctx, f, min(*room, most))
		if err != nil {
			return m, err
		}
		*room -= len(content)
		if kind != model.Text {
			m.Parts = append(m.Parts, model.Part{Kind: kind, Name: f.DisplayName, MIMEType: f.MIMEType, Data: content})
			continue
		}
		if !utf8.Valid(content) {
			return m, fault.New(fault.InvalidRequest, "native.files", fault.Detail("files: a text file that is not UTF-8"))
		}
		fmt.Fprintf(&text, "\n\n[File %q]\n%s", f.DisplayName, event.SanitizeText(string(content)))
	}
	block, shown := contextblock.Client(in.ClientContext)
	if !shown {
		w := event.Warning{Code: "context_not_shown", Message: "The client context of this turn is not shown to the model: it is too large."}
		if err := r.emit.Emit(ctx, event.Draft{Data: w}); err != nil {
			return m, err
		}
	}
	if block != "" {
		text.WriteString("\n\n" + block)
	}
	m.Parts = append(m.Parts, model.Part{Kind: model.Text, Text: text.String()})
	return m, nil
}

// kindOf is how a file is shown, or "".
func kindOf(mimeType string) model.Kind {
	mimeType, _, _ = strings.Cut(mimeType, ";")
	mimeType = strings.ToLower(strings.TrimSpace(mimeType))
	switch {
	case strings.HasPrefix(mimeType, "text/"), mimeType == "application/json":
		return model.Text
	case mimeType == "application/pdf":
		return model.Document
	case slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, mimeType):
		return model.Image
	default:
		return ""
	}
}

// notShown is why a file is not shown, or "".
func (r *run) notShown(f harness.File, kind model.Kind, room int) string {
	can := r.construction.Model
	switch {
	case kind == "", kind == model.Image && !can.Images, kind == model.Document && !can.Documents:
		return cannotBeShown
	case f.Size > uint64(max(room, 0)):
		return "is too large to be shown"
	default:
		return ""
	}
}
