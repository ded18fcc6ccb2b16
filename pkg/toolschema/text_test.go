package toolschema_test

import (
	"encoding/json"
	"testing"

	"cofferdam.dev/pkg/toolschema"
)

func TestCheckText(t *testing.T) {
	t.Parallel()
	s, err := toolschema.Compile(json.RawMessage(`{"type":"object","required":["path"],"properties":{"path":{"type":"string"}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for args, ok := range map[string]bool{
		`{"path":"a"}`: true, `{"path":1}`: false, `{}`: false, `{"path":"a","path":"b"}`: false, `{"path":"a","Path":"b"}`: false, `[]`: false, `null`: false, ``: false,
	} {
		if err := s.CheckText([]byte(args)); (err == nil) != ok {
			t.Errorf("%s: %v", args, err)
		}
	}
}
