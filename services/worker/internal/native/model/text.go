package model

import (
	"encoding/base64"
	"strings"
)

// Joined is the text of a message without anything else in it.
func (m Message) Joined() string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Kind == Text {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Calls are the calls of a message.
func (m Message) Calls() []Part {
	var calls []Part
	for _, p := range m.Parts {
		if p.Kind == Call {
			calls = append(calls, p)
		}
	}
	return calls
}

// Base64 is the content of a file as wires carry it.
func (p Part) Base64() string { return base64.StdEncoding.EncodeToString(p.Data) }

// DataURL is the content of a file as a URL.
func (p Part) DataURL() string { return "data:" + p.MIMEType + ";base64," + p.Base64() }
