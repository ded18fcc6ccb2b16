package project

import (
	"encoding/json"
	"strings"

	"cofferdam.dev/pkg/event"
)

// Bounds of the short strings of a content, in bytes.
const (
	maxURI      = 2048
	maxName     = 512
	maxMIMEType = 128
)

// item is one content as it is shown.
type item struct {
	Type        string          `json:"type"`
	Text        json.RawMessage `json:"text,omitempty"`
	MIMEType    string          `json:"mime_type,omitempty"`
	Size        *int            `json:"size,omitempty"`
	URI         string          `json:"uri,omitempty"`
	Name        string          `json:"name,omitempty"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
}

// contents adds the contents of a result. One that is malformed spoils no other.
func (b *builder) contents(raw json.RawMessage) {
	var list []json.RawMessage
	if len(raw) > 0 && json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw} // some servers send one content without a list
	}
	if len(list) > maxItems {
		list, b.truncated = list[:maxItems], true
	}
	cut := b.truncated
	b.truncated = false
	for _, c := range list {
		b.content(fieldsOf(c))
	}
	b.truncated = b.truncated || cut
}

func (b *builder) content(f fields) {
	kind := f.text("type")
	switch kind {
	case "text":
		text := f.text("text")
		b.add(item{Type: kind}, &text)
	case "image", "audio":
		b.add(item{Type: kind, MIMEType: b.short(f.text("mimeType"), maxMIMEType), Size: base64Size(f.text("data"))}, nil)
	case "resource_link":
		b.add(item{
			Type: kind, MIMEType: b.short(f.text("mimeType"), maxMIMEType), Size: f.size("size"), URI: b.short(f.text("uri"), maxURI),
			Name: b.short(f.text("name"), maxName), Title: b.short(f.text("title"), maxName), Description: b.short(f.text("description"), maxName),
		}, nil)
	case "resource":
		r := fieldsOf(f["resource"])
		it := item{Type: kind, MIMEType: b.short(r.text("mimeType"), maxMIMEType), URI: b.short(r.text("uri"), maxURI)}
		if _, binary := r["blob"]; binary {
			it.Size = base64Size(r.text("blob"))
			b.add(it, nil)
			return
		}
		text := r.text("text")
		b.add(it, &text)
	default:
		b.add(item{Type: "unsupported", Name: b.short(kind, maxName)}, nil)
	}
}

func (b *builder) short(s string, most int) string {
	return event.Truncate(event.SanitizeText(b.redact.Cut(s)), most)
}

// fields are the members of an object under their exact names.
type fields map[string]json.RawMessage

func fieldsOf(raw json.RawMessage) fields {
	var f fields
	if json.Unmarshal(raw, &f) != nil {
		return nil
	}
	return f
}

// text is a member that is a string, or "".
func (f fields) text(name string) string {
	var s string
	if json.Unmarshal(f[name], &s) != nil {
		return ""
	}
	return s
}

// size is a member that is a count, or nil.
func (f fields) size(name string) *int {
	var n int
	if json.Unmarshal(f[name], &n) != nil || n < 0 || f[name] == nil {
		return nil
	}
	return &n
}

// base64Size is how many bytes base64 text stands for.
func base64Size(text string) *int {
	n := len(strings.TrimRight(text, "=")) * 3 / 4
	return &n
}
