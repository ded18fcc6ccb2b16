package mcpcall

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestARequestLeavesInTimeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by   time.Time
		want error
	}{
		"any time":  {time.Time{}, ErrNoAnswer},
		"in time":   {time.Now().Add(time.Hour), ErrNoAnswer},
		"too late":  {time.Now().Add(-time.Nanosecond), ErrNotSent},
		"just over": {time.Now(), ErrNotSent},
	} {
		x := &Exchange{Method: methodCall, by: c.by}
		err := x.Leave()
		if (err == nil) != (c.want == ErrNoAnswer) { //nolint:errorlint // a value of the table
			t.Errorf("%s: %v", name, err)
		}
		if _, got := x.outcome(t.Context(), err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
		if x.Leave() == nil {
			t.Errorf("%s: it leaves after its caller was told", name)
		}
	}
	x := &Exchange{Method: methodCall}
	_ = x.Leave()
	x.Arrive(&jsonrpc.Response{Result: json.RawMessage(`1`)})
	x.Arrive(&jsonrpc.Response{Result: json.RawMessage(`2`)})
	if a, err := x.outcome(t.Context(), errors.New("the connection broke")); err != nil || string(a.Result) != `1` {
		t.Errorf("%s %v", a.Result, err)
	}
}

// What the SDK gets in place of an answer it can always decode.
func FuzzPlainResults(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"B"}}}}],"ttlMs":5}`))
	f.Add([]byte(`{"tools":[null,5,{"name":5,"inputSchema":"x-mcp-header"},{"x-mcp-header":1}]}`))
	f.Add([]byte("{\"tools\":[{\"name\":\"\xff\",\"inputSchema\":{\"x-mcp-header\":\"a\"}}]}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list := (&Exchange{Method: methodList, headers: true}).plain(raw)
		var tools mcp.ListToolsResult
		if err := json.Unmarshal(list, &tools); err != nil || tools.TTLMs != 0 || tools.NextCursor != "" {
			t.Errorf("%q becomes %q: %v", raw, list, err)
		}
		for _, tool := range tools.Tools {
			if tool == nil || tool.InputSchema == nil {
				t.Errorf("%q becomes %q", raw, list)
			}
		}
		var result mcp.CallToolResult
		if err := json.Unmarshal((&Exchange{Method: methodCall}).plain(raw), &result); err != nil {
			t.Error(err)
		}
	})
}

func TestTimesToLive(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		`60000`: time.Minute, `1.5e3`: 1500 * time.Millisecond, `0`: 0, `-5`: 0, `"60000"`: 0, `null`: 0, ``: 0, `{}`: 0, `1e300`: maxTTL,
	} {
		if got := milliseconds(json.RawMessage(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
