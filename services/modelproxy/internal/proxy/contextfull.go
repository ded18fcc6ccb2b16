package proxy

import (
	"bytes"
	"io"
)

// maxErrorBody bounds what is read of an error's body, in bytes.
const maxErrorBody = 16 << 10

// contextFull reports whether an endpoint's error says that the request is longer
// than its model's context. The wires have no code in common for it, and two have
// none at all: these are the words of those that are known.
func contextFull(body io.Reader) bool {
	raw, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return false
	}
	raw = bytes.ToLower(raw)
	for _, words := range [][]byte{
		[]byte("context_length_exceeded"),              // OpenAI, both wires
		[]byte("prompt is too long"),                   // Anthropic Messages
		[]byte("exceeds the maximum number of tokens"), // Gemini
		[]byte("maximum context length"),               // compatible servers
	} {
		if bytes.Contains(raw, words) {
			return true
		}
	}
	return false
}
