package mongostore

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// encode makes the JSON of a document. Events in it keep their bytes, so
// nothing is escaped for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("mongostore: encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func decode(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("mongostore: decode: %w", err)
	}
	return nil
}
