// Package jsonline writes JSON as the frames of a stream need it.
package jsonline

import (
	"bytes"
	"encoding/json"
)

// Encode gives a value as one line of JSON without a line feed. HTML is not
// escaped: what was said goes out as it was said.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
