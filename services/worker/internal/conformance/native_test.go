package conformance_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"cofferdam.dev/services/worker/internal/conformance"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native"
)

func TestNative(t *testing.T) {
	t.Parallel()
	const options = `{"model_retries":0,"subagents":[{"name":"helper","description":"Helps.","prompt":"You help.","tools":["test.echo"]}]}`
	dialect := conformance.Dialect{
		Put: func(r conformance.Record) string {
			return fmt.Sprintf(`memory_put {"scope":%q,"key":%q,"kind":%q,"content":%q,"revision":%d}`, r.In(), r.Key, r.Of(), r.Text, r.Revision)
		},
		Get: func(r conformance.Record) string {
			return fmt.Sprintf(`memory_get {"scope":%q,"key":%q}`, r.In(), r.Key)
		},
		Read: func(name string) string { return fmt.Sprintf(`read_file {"path":%q}`, name) },
		File: func(string) string { return "" }, // the model is shown it
		Delegate: func(c conformance.Call) string {
			return fmt.Sprintf(`subagent_helper {"task":%q}`, ">>call "+c.Tool+" "+c.Args)
		},
		Form: `ask_user {"prompt":"Which?","fields":[{"name":"region","type":"text","required":true}]}`,
	}
	for wire, over := range map[harness.Wire][]string{
		harness.WireOpenAIChat: conformance.Ways(), harness.WireOpenAIResponses: {conformance.Connect}, harness.WireAnthropicMessages: {conformance.HTTP},
	} {
		t.Run(string(wire), func(t *testing.T) {
			conformance.Run(t, conformance.Setup{
				New: func(_ *testing.T, workspace string, _ *slog.Logger) harness.Adapter {
					return native.New(native.Config{Workspace: workspace})
				},
				Options: json.RawMessage(options), Wire: wire, Over: over,
				Phrase: func(i conformance.Intent) string { return conformance.DemoLines(i, dialect) },
			})
		})
	}
}
