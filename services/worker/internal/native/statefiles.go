package native

import (
	"encoding/base64"
	"fmt"
	"slices"

	"cofferdam.dev/services/worker/internal/native/model"
)

// withoutFiles is a copy of the state in which the oldest files are replaced by a
// note, until that many bytes are saved. The conversation itself keeps them: the
// model sees them for as long as the run lasts.
func (s *state) withoutFiles(bytes int) *state {
	c := *s.Conversation
	c.Messages = slices.Clone(c.Messages)
	for i, m := range c.Messages {
		if bytes <= 0 {
			break
		}
		if !slices.ContainsFunc(m.Parts, isFile) {
			continue
		}
		c.Messages[i].Parts = slices.Clone(m.Parts)
		for j, p := range m.Parts {
			if bytes > 0 && isFile(p) {
				c.Messages[i].Parts[j] = noted(p, "was shown earlier and is not kept")
				bytes -= base64.StdEncoding.EncodedLen(len(p.Data)) - len(c.Messages[i].Parts[j].Text)
			}
		}
	}
	return &state{Conversation: &c, Interrupt: s.Interrupt}
}

func isFile(p model.Part) bool { return p.Kind == model.Image || p.Kind == model.Document }

// noted names a file, so that the model does not think it has it.
func noted(p model.Part, why string) model.Part {
	return model.Part{Kind: model.Text, Text: note(p.Name, p.MIMEType, uint64(len(p.Data)), why)}
}

func note(name, mimeType string, size uint64, why string) string {
	return fmt.Sprintf("\n\n[File %q of type %s, %d bytes: %s]", name, mimeType, size, why)
}
