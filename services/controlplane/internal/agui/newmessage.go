package agui

import (
	"encoding/json"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// userMessage is the shape of a message of the user.
type userMessage struct {
	ID             string          `json:"id"`
	Role           string          `json:"role"`
	Content        json.RawMessage `json:"content"`
	Name           string          `json:"name,omitempty"`
	SubagentRunID  string          `json:"subagentRunId,omitempty"`
	EncryptedValue string          `json:"encryptedValue,omitempty"`
	Metadata       map[string]any  `json:"metadata,omitempty"`
}

// newMessage is the text of the last message, and how many parts of it are none.
func newMessage(raw []json.RawMessage) (text string, skipped int, err error) {
	if len(raw) == 0 {
		return "", 0, invalid("/messages", "the user's new message has to stand last")
	}
	last := raw[len(raw)-1]
	at := "/messages/" + strconv.Itoa(len(raw)-1)
	if member(last, "role") != roleUser {
		return "", 0, invalid(at+"/role", "the last message has to be the user's new one")
	}
	var m userMessage
	if err := decode(last, &m, at); err != nil {
		return "", 0, err
	}
	if text, skipped, err = content(m.Content, at+"/content"); err != nil {
		return "", 0, err
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", 0, invalid(at+"/content", "text is required")
	case len(text) > MaxMessageBytes:
		return "", 0, refused(fault.RequestTooLarge, at+"/content", "at most 256 KiB of text")
	}
	return text, skipped, nil
}

// content joins text parts as they are. Parts of other kinds are skipped, as the
// protocol wants it of who cannot use them; the stream tells of it.
func content(raw json.RawMessage, at string) (text string, skipped int, err error) {
	if len(raw) > 0 && raw[0] == '"' {
		err = decode(raw, &text, at)
		return text, 0, err
	}
	var parts []json.RawMessage
	if err := decode(raw, &parts, at); err != nil {
		return "", 0, err
	}
	var b strings.Builder
	for i, r := range parts {
		at := at + "/" + strconv.Itoa(i)
		switch member(r, "type") {
		case "text":
		case "image", "audio", "video", "document":
			skipped++
			continue
		default:
			return "", 0, invalid(at+"/type", "text, image, audio, video or document")
		}
		var part struct {
			Type     string `json:"type"`
			ID       string `json:"id,omitempty"`
			Text     string `json:"text"`
			Metadata any    `json:"metadata,omitempty"`
		}
		if err := decode(r, &part, at); err != nil {
			return "", 0, err
		}
		b.WriteString(part.Text)
	}
	return b.String(), skipped, nil
}
