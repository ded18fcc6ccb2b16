package acp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	sdk "github.com/coder/acp-go-sdk"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/contextblock"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

// How large a file may be, in bytes, to travel in the prompt, or to be put into
// the workspace.
const (
	maxImage    = 4 << 20
	maxEmbedded = 128 << 10
	maxFile     = 32 << 20
	maxFileName = 100
)

// prompt is the agent's prompt with the context of the user.
func (r *runtime) prompt() string {
	return contextblock.Prompt(r.construction.Prompt, r.construction.UserContext)
}

func textBlock(text string) block { return sdk.TextBlock(text) }

// blocks are the prompt of a turn.
func (t *turn) blocks(ctx context.Context, p *program, in harness.Turn, first bool) ([]block, error) {
	var text strings.Builder
	if prompt := t.prompt(); first && t.cfg.Preset.PromptFile == "" && prompt != "" {
		fmt.Fprintf(&text, "Instructions:\n%s\n\nMessage of the user:\n", prompt)
	} else if strings.HasPrefix(strings.TrimSpace(in.Message), "/") {
		text.WriteString(t.cfg.Preset.SlashPrefix)
	}
	text.WriteString(in.Message)
	context, shown := contextblock.Client(in.ClientContext)
	if !shown {
		err := t.project(func(pr *projector) ([]event.Draft, error) {
			return pr.warn("context_not_shown", "The client context of this turn is not shown to the agent: it is too large."), nil
		})
		if err != nil {
			return nil, err
		}
	}
	if context != "" { // behind the message: some agents take their session's title from its beginning
		text.WriteString("\n\n" + context)
	}
	var more []block
	for i, f := range in.Files {
		b, note, err := t.file(ctx, p, f, i)
		if err != nil {
			return nil, err
		}
		text.WriteString(note)
		if b != nil {
			more = append(more, *b)
		}
	}
	return append([]block{textBlock(text.String())}, more...), nil
}

// file is a file of the prompt: a block where the agent takes it, else a note of
// where it is.
func (t *turn) file(ctx context.Context, p *program, f harness.File, i int) (*block, string, error) {
	if f.Size > maxFile {
		err := t.project(func(pr *projector) ([]event.Draft, error) {
			return pr.warn("file_not_shown", "A file of this turn is too large to be given to the agent."), nil
		})
		return nil, fmt.Sprintf("\n\n[File %q of type %s, %d bytes: too large to be given to you]", f.DisplayName, f.MIMEType, f.Size), err
	}
	data, err := t.facades.Files.Read(ctx, f, maxFile)
	if err != nil {
		return nil, "", err
	}
	takes := p.capabilities().PromptCapabilities
	place := path.Join(hosted.Workspace, "uploads", t.tag, fileName(f.DisplayName, i))
	switch {
	case t.cfg.Preset.Images && takes.Image && t.construction.Model.Images && strings.HasPrefix(f.MIMEType, "image/") && len(data) <= maxImage:
		b := sdk.ImageBlock(base64.StdEncoding.EncodeToString(data), f.MIMEType)
		return &b, "", nil
	case t.cfg.Preset.Embedded && takes.EmbeddedContext && isText(f.MIMEType) && len(data) <= maxEmbedded && utf8.Valid(data):
		media := f.MIMEType
		b := sdk.ResourceBlock(sdk.EmbeddedResourceResource{TextResourceContents: &sdk.TextResourceContents{
			Uri: "file://" + place, MimeType: &media, Text: string(data),
		}})
		return &b, "", nil
	default:
		err := t.cfg.World.WriteFile(ctx, hosted.File{Path: place}, bytes.NewReader(data))
		return nil, fmt.Sprintf("\n\n[File %q of type %s is at %s]", f.DisplayName, f.MIMEType, place), err
	}
}

func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || media == "application/json"
}

// fileName makes a name that is safe in a path and is no other file's.
func fileName(name string, i int) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, path.Base(name))
	safe = strings.TrimLeft(safe, ".")
	if len(safe) > maxFileName { // the end tells the type
		safe = safe[len(safe)-maxFileName:]
	}
	if safe == "" {
		safe = "file"
	}
	return fmt.Sprintf("%d-%s", i+1, safe)
}
