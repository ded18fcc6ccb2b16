package event_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
)

// goldens are the events that testdata/golden has the published shape of, one
// line of JSON each.
func goldens() map[string]event.Event {
	payloads := map[string]event.Data{
		"run.started":            event.RunStarted{MessageID: "message-1", HarnessID: "native", AdapterVersion: "1.0.0", ProviderRunID: "provider-1"},
		"run.started-short":      event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"},
		"run.finished":           event.RunFinished{StopReason: "end_turn", ThreadState: event.Committed(8, "head-1")},
		"run.finished-ephemeral": event.RunFinished{StopReason: "end_turn", ThreadState: event.Ephemeral()},
		"run.finished-worker":    event.RunFinished{StopReason: "max_tokens"},
		"run.interrupted":        event.RunInterrupted{InterruptID: "interrupt-1", Reason: event.InterruptedForToolApproval},
		"run.cancelled":          event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsPossible},
		"run.error":              event.RunError{Code: "rate_limited", Message: "The model is busy.", Retryable: true, RetryAfterSeconds: new(uint64(30)), SideEffectStatus: event.SideEffectsNone},
		"run.error-short":        event.RunError{Code: "sandbox_evicted", Message: "The sandbox went away.", SideEffectStatus: event.SideEffectsKnown},
		"text.started":           event.TextStarted{MessageID: "message-1"},
		"text.delta":             event.TextDelta{MessageID: "message-1", Delta: "<b>\"Grüße\"</b> & \\ 😀\n\t\u2028"},
		"text.finished":          event.TextFinished{MessageID: "message-1"},
		"reasoning.started":      event.ReasoningStarted{MessageID: "message-1"},
		"reasoning.delta":        event.ReasoningDelta{MessageID: "message-1", Delta: "hm"},
		"reasoning.finished":     event.ReasoningFinished{MessageID: "message-1"},
		"tool.started":           event.ToolStarted{ToolCallID: "call-1", ToolName: "fs.read_text_file", Arguments: `{"path":"a.txt","n":12345678901234567890,"f":1.50}`, ParentMessageID: "message-1"},
		"tool.started-later":     event.ToolStarted{ToolCallID: "call-1", ToolName: "fs.read_text_file", Arguments: event.EmptyObject},
		"tool.arguments.delta":   event.ToolArgumentsDelta{ToolCallID: "call-1", Delta: `{"path":"\ud83d`},
		"tool.finished":          event.ToolFinished{ToolCallID: "call-1", Result: `"12 bytes"`, ResultRef: "file-1"},
		"tool.finished-object":   event.ToolFinished{ToolCallID: "call-1", Result: `{"ID":1,"id":[null,true]}`},
		"tool.error":             event.ToolError{ToolCallID: "call-1", Code: "tool_unavailable", Message: "The tool is not there.", Retryable: true},
		"interrupt.requested":    approval("call-1").Data,
		"namespace.entered":      event.NamespaceEntered{AgentID: "helper", AgentName: "Der Helfer", ParentToolCallID: "call-1"},
		"namespace.exited":       event.NamespaceExited{AgentID: "helper", ParentToolCallID: "call-1", Outcome: event.NamespaceInterrupted},
		"warning":                event.Warning{Code: "mcp_server_unavailable", Message: "A tool server is away.", Details: `{"server":"fs","attempt":2,"last":null}`},
		"warning-short":          event.Warning{Code: "slow", Message: "This takes a while."},
		"usage.updated":          event.UsageUpdated{InputTokens: new(uint64(10)), OutputTokens: new(uint64(5)), CachedInputTokens: new(uint64(0)), Cost: new(0.0125), Currency: new("EUR"), Final: true},
		"usage.updated-unknown":  event.UsageUpdated{},
		"provider.metadata":      event.ProviderMetadata{Provider: "example", Model: "example/model:1", Metadata: `{"region":"eu","attempt":1,"cache_hit":false}`},
		"interrupt.requested-form": event.InterruptRequested{
			InterruptID: "interrupt-1", InterruptType: event.InterruptFormInput, AgentID: "agent-1", Prompt: "Provide values",
			Fields: []event.FormField{
				{FieldName: "region", FieldLabel: "Region", FieldDescription: "Where it runs", FieldType: "select", FieldValues: []string{"eu", "us"}, Required: true, DefaultValue: `"eu"`, Placeholder: "eu"},
				{FieldName: "example_value", FieldType: "text"},
			},
		},
	}
	events := make(map[string]event.Event)
	for name, data := range payloads {
		e := event.Event{
			RunID: "run-opaque", ConversationID: "conversation-example", Sequence: 3,
			Timestamp: time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC), Data: data,
		}
		if strings.HasPrefix(name, "namespace") {
			e.Namespace = []string{"call-0", "call-1"}
			e.Timestamp = e.Timestamp.Add(1500 * time.Microsecond)
		}
		events[name] = e
	}
	return events
}

func TestGoldens(t *testing.T) {
	t.Parallel()
	seen := make(map[event.Type]bool)
	for name, e := range goldens() {
		seen[e.Type()] = true
		text, err := os.ReadFile(filepath.Join("testdata", "golden", name+".json"))
		if err != nil {
			t.Error(err)
			continue
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		encoded, err := event.Encode(e)
		if err != nil || !bytes.Equal(encoded, text) {
			t.Errorf("%s is encoded as\n%s (%v), not as\n%s", name, encoded, err, text)
		}
		decoded, err := event.Decode(text, event.Bounds{})
		if err != nil || !reflect.DeepEqual(decoded, e) {
			t.Errorf("%s is decoded as\n%+v (%v), not as\n%+v", name, decoded, err, e)
		}
	}
	for _, kind := range event.Types() {
		if !seen[kind] {
			t.Errorf("no golden for %s", kind)
		}
	}
	if files, err := filepath.Glob("testdata/golden/*"); err != nil || len(files) != len(goldens()) {
		t.Errorf("%d golden files for %d events (%v)", len(files), len(goldens()), err)
	}
}

// Logs of other implementations have what the contract shows: null for an
// optional field, an offset of zero, space between tokens.
func TestOtherSpellingsOfTheContract(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want event.Event
	}{
		"null for an optional field": {
			`{"version":1,"type":"run.error","run_id":"run-opaque","conversation_id":"conversation-example","sequence":3,"timestamp":"2026-08-17T00:00:00Z","namespace":[],` +
				`"data":{"code":"sandbox_evicted","message":"The sandbox went away.","retryable":false,"retry_after_seconds":null,"side_effect_status":"known"}}`,
			goldens()["run.error-short"],
		},
		"null for absent details": {
			`{"version":1,"type":"warning","run_id":"run-opaque","conversation_id":"conversation-example","sequence":3,"timestamp":"2026-08-17T00:00:00Z","namespace":[],"data":{"code":"slow","message":"This takes a while.","details":null}}`,
			goldens()["warning-short"],
		},
		"an offset of zero": {
			`{"version":1,"type":"text.started","run_id":"run-opaque","conversation_id":"conversation-example","sequence":3,"timestamp":"2026-08-17T00:00:00+00:00","namespace":[],"data":{"message_id":"message-1","role":"assistant"}}`,
			goldens()["text.started"],
		},
		"space and another order": {
			"{\n  \"data\": {\"arguments\": { }, \"tool_name\": \"fs.read_text_file\", \"parent_message_id\": null, \"tool_call_id\": \"call-1\"},\n  \"namespace\": [ ],\n" +
				`"timestamp": "2026-08-17T00:00:00.000Z", "sequence": 3, "conversation_id": "conversation-example", "run_id": "run-opaque", "type": "tool.started", "version": 1}` + "\n",
			goldens()["tool.started-later"],
		},
	} {
		got, err := event.Decode([]byte(c.text), event.Bounds{})
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: decoded as %+v (%v)", name, got, err)
		}
	}
}
