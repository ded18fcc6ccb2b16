package event_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
)

// with is a valid envelope around a type and a payload.
func with(kind, data string) string {
	return fmt.Sprintf(`{"version":1,"type":%q,"run_id":"r","conversation_id":"c","sequence":3,"timestamp":"2026-08-17T00:00:00Z","namespace":[],"data":%s}`, kind, data)
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	valid := with("text.started", `{"message_id":"m","role":"assistant"}`)
	if _, err := event.Decode([]byte(valid), event.Bounds{}); err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) string {
		if !strings.Contains(valid, from) {
			t.Fatalf("%s is not in the valid event", from)
		}
		return strings.Replace(valid, from, to, 1)
	}
	deep := strings.Repeat(`{"a":`, 32) + "{}" + strings.Repeat("}", 32)
	usage := func(number string) string {
		return with("usage.updated", `{"input_tokens":`+number+`,"output_tokens":null,"cached_input_tokens":null,"cost":null,"currency":null,"final":false}`)
	}
	for name, text := range map[string]string{
		"nothing":                       "",
		"no object":                     "[]",
		"two events":                    valid + valid,
		"another version":               swap(`"version":1`, `"version":2`),
		"no version":                    swap(`"version":1,`, ``),
		"unknown type":                  swap(`text.started`, `text.begun`),
		"no type":                       swap(`"type":"text.started",`, ``),
		"type of another payload":       swap(`text.started`, `run.error`),
		"unknown envelope field":        swap(`"version":1`, `"version":1,"extra":1`),
		"envelope field in caps":        swap(`"run_id"`, `"RUN_ID"`),
		"duplicate envelope field":      swap(`"version":1`, `"version":1,"version":1`),
		"field in two cases":            swap(`"version":1`, `"version":1,"Version":1`),
		"unknown payload field":         swap(`"role"`, `"extra":1,"role"`),
		"duplicate payload field":       swap(`"message_id":"m"`, `"message_id":"m","message_id":"n"`),
		"no payload":                    swap(`,"data":{"message_id":"m","role":"assistant"}`, ``),
		"payload is null":               swap(`{"message_id":"m","role":"assistant"}`, `null`),
		"payload lacks a field":         swap(`"message_id":"m",`, ``),
		"another role":                  swap(`"assistant"`, `"user"`),
		"no role":                       swap(`,"role":"assistant"`, ``),
		"another outcome":               with("run.finished", `{"outcome":"failure","stop_reason":"end_turn"}`),
		"sequence as float":             swap(`"sequence":3`, `"sequence":3.0`),
		"sequence with exponent":        swap(`"sequence":3`, `"sequence":3e0`),
		"sequence as text":              swap(`"sequence":3`, `"sequence":"3"`),
		"sequence below zero":           swap(`"sequence":3`, `"sequence":-3`),
		"sequence of null":              swap(`"sequence":3`, `"sequence":null`),
		"sequence over 2^53":            swap(`"sequence":3`, `"sequence":9007199254740992`),
		"sequence over 2^64":            swap(`"sequence":3`, `"sequence":18446744073709551616`),
		"no time":                       swap(`2026-08-17T00:00:00Z`, `yesterday`),
		"time in another zone":          swap(`00:00:00Z`, `02:00:00+02:00`),
		"time without a zone":           swap(`00:00:00Z`, `00:00:00`),
		"time of an unknown zone":       swap(`00:00:00Z`, `00:00:00-00:00`),
		"time as number":                swap(`"2026-08-17T00:00:00Z"`, `1787000000`),
		"namespace of null":             swap(`"namespace":[]`, `"namespace":null`),
		"namespace as text":             swap(`"namespace":[]`, `"namespace":"a"`),
		"no namespace":                  swap(`"namespace":[],`, ``),
		"namespace with an empty id":    swap(`"namespace":[]`, `"namespace":[""]`),
		"namespace too deep":            swap(`"namespace":[]`, `"namespace":["1","2","3","4","5","6","7","8","9"]`),
		"run id empty":                  swap(`"run_id":"r"`, `"run_id":""`),
		"run id too long":               swap(`"run_id":"r"`, `"run_id":"`+strings.Repeat("r", 129)+`"`),
		"run id with a slash":           swap(`"run_id":"r"`, `"run_id":"a/b"`),
		"run id with a line feed":       swap(`"run_id":"r"`, `"run_id":"r\n"`),
		"conversation id of another":    swap(`"conversation_id":"c"`, `"conversation_id":"c c"`),
		"message id of null":            swap(`"message_id":"m"`, `"message_id":null`),
		"delta of null":                 with("text.delta", `{"message_id":"m","delta":null}`),
		"NUL":                           with("text.delta", `{"message_id":"m","delta":"\u0000"}`),
		"escape character":              with("text.delta", `{"message_id":"m","delta":"\u001b[31m"}`),
		"half a surrogate pair":         with("text.delta", `{"message_id":"m","delta":"\ud83d"}`),
		"no UTF-8":                      with("text.delta", "{\"message_id\":\"m\",\"delta\":\"\xff\"}"),
		"delta too long":                with("text.delta", `{"message_id":"m","delta":"`+strings.Repeat("w", event.MaxDeltaBytes+1)+`"}`),
		"event too large":               with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":{"a":"`+strings.Repeat("w", event.MaxEventBytes)+`"}}`),
		"arguments as text":             with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":"{}"}`),
		"arguments as array":            with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":[]}`),
		"arguments of null":             with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":null}`),
		"arguments with a key twice":    with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":{"a":1,"a":2}}`),
		"arguments with a key in caps":  with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":{"a":1,"A":2}}`),
		"arguments 33 deep":             with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":`+deep+`}`),
		"arguments with infinity":       with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":{"a":1e999}}`),
		"tool name with a space":        with("tool.started", `{"tool_call_id":"c","tool_name":"t t","arguments":{}}`),
		"no result":                     with("tool.finished", `{"tool_call_id":"c"}`),
		"result with a key twice":       with("tool.finished", `{"tool_call_id":"c","result":{"a":1,"a":2}}`),
		"result too large":              with("tool.finished", `{"tool_call_id":"c","result":"`+strings.Repeat("w", event.MaxResultBytes)+`"}`),
		"result with NUL":               with("tool.finished", `{"tool_call_id":"c","result":{"a":"\u0000"}}`),
		"tool error without a text":     with("tool.error", `{"tool_call_id":"c","code":"e","message":"","retryable":false}`),
		"retryable as text":             with("tool.error", `{"tool_call_id":"c","code":"e","message":"m","retryable":"no"}`),
		"usage as float":                usage(`1.5`),
		"usage below zero":              usage(`-1`),
		"usage over 2^53":               usage(`9007199254740992`),
		"usage left out":                with("usage.updated", `{"output_tokens":null,"cached_input_tokens":null,"cost":null,"currency":null,"final":false}`),
		"cost below zero":               with("usage.updated", `{"input_tokens":null,"output_tokens":null,"cached_input_tokens":null,"cost":-1,"currency":null,"final":false}`),
		"cost of infinity":              with("usage.updated", `{"input_tokens":null,"output_tokens":null,"cached_input_tokens":null,"cost":1e999,"currency":null,"final":false}`),
		"unknown effects":               with("run.cancelled", `{"reason":"deadline","side_effect_status":"maybe"}`),
		"unknown cancel reason":         with("run.cancelled", `{"reason":"bored","side_effect_status":"none"}`),
		"unknown interrupt reason":      with("run.interrupted", `{"interrupt_id":"i","reason":"lunch"}`),
		"unknown namespace outcome":     with("namespace.exited", `{"agent_id":"a","parent_tool_call_id":"c","outcome":"maybe"}`),
		"unknown durability":            with("run.finished", `{"outcome":"success","stop_reason":"s","thread_state":{"durability":"hoped","durable_revision":null,"head_ref":null}}`),
		"committed without a head":      with("run.finished", `{"outcome":"success","stop_reason":"s","thread_state":{"durability":"committed","durable_revision":1,"head_ref":null}}`),
		"a head that is not committed":  with("run.finished", `{"outcome":"success","stop_reason":"s","thread_state":{"durability":"none","durable_revision":1,"head_ref":null}}`),
		"harness id in caps":            with("run.started", `{"harness_id":"Native","adapter_version":"1"}`),
		"harness id of one letter":      with("run.started", `{"harness_id":"n","adapter_version":"1"}`),
		"harness id of digits":          with("run.started", `{"harness_id":"12","adapter_version":"1"}`),
		"optional id with a slash":      with("run.started", `{"harness_id":"native","adapter_version":"1","message_id":"a/b"}`),
		"result ref with a space":       with("tool.finished", `{"tool_call_id":"c","result":1,"result_ref":"a b"}`),
		"message too long":              with("tool.error", `{"tool_call_id":"c","code":"e","message":"`+strings.Repeat("w", event.MaxMessageBytes+1)+`","retryable":false}`),
		"version without a text":        with("run.started", `{"harness_id":"native","adapter_version":""}`),
		"form of 65 fields":             with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[`+manyFields(65)+`]}`),
		"field of 257 values":           with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true,"field_values":[`+strings.Repeat(`"",`, 256)+`""]}]}`),
		"default value nested":          with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true,"default_value":[[]]}]}`),
		"details as a list":             with("warning", `{"code":"w","message":"m","details":[1]}`),
		"details nested":                with("warning", `{"code":"w","message":"m","details":{"a":{}}}`),
		"details of 33 keys":            with("warning", `{"code":"w","message":"m","details":{`+manyKeys(33)+`}}`),
		"details too large":             with("warning", `{"code":"w","message":"m","details":{"a":"`+strings.Repeat("w", event.MaxDetailsBytes)+`"}}`),
		"metadata not on the list":      with("provider.metadata", `{"provider":"p","model":"m","metadata":{"api_key":"k"}}`),
		"metadata nested":               with("provider.metadata", `{"provider":"p","model":"m","metadata":{"region":["eu"]}}`),
		"interrupt of no type":          with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"lunch","agent_id":"a"}`),
		"form without fields":           with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[]}`),
		"form without a prompt":         with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","fields":[{"field_name":"f","field_type":"text","required":true}]}`),
		"form with approvals":           with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true}],"tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{},"allowed_decisions":["approve"]}]}`),
		"fields that differ in case":    with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true},{"field_name":"F","field_type":"text","required":true}]}`),
		"approval without approvals":    with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a"}`),
		"approval without decisions":    with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{},"allowed_decisions":[]}]}`),
		"approval of an unknown answer": with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{},"allowed_decisions":["maybe"]}]}`),
		"approval of an answer twice":   with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{},"allowed_decisions":["edit","edit"]}]}`),
		"approval of a call twice":      with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{},"allowed_decisions":["edit"]},{"tool_call_id":"c","tool_name":"t.t","tool_args":{},"allowed_decisions":["edit"]}]}`),
		"approval with a key in caps":   with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{"a":1,"A":2},"allowed_decisions":["edit"]}]}`),
		"approval with a key twice":     with("interrupt.requested", `{"interrupt_id":"i","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c","tool_name":"t.t","tool_args":{"a":1,"a":2},"allowed_decisions":["edit"]}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := event.Decode([]byte(text), event.Bounds{})
			v, ok := errors.AsType[*event.ViolationError](err)
			if !ok || v.Rule != 0 {
				t.Fatalf("decoded as %+v, %v", e, err)
			}
		})
	}
}

func manyFields(n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`{"field_name":"f%d","field_type":"text","required":true}`, i)
	}
	return strings.Join(fields, ",")
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"k%d":0`, i)
	}
	return strings.Join(keys, ",")
}

func TestAViolationHasNoTextOfTheEvent(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, text := range []string{
		with("text.delta", `{"message_id":"m","delta":"x\u0000`+secret+`"}`),
		with("text.delta", `{"message_id":"m","delta":"x","`+secret+`":1}`),
		with("text.delta", `{"message_id":"`+secret+` ","delta":"x"}`),
		with("tool.started", `{"tool_call_id":"c","tool_name":"t.t","arguments":{"`+secret+`":1,"`+secret+`":2}}`),
		with(secret, `{}`),
	} {
		_, err := event.Decode([]byte(text), event.Bounds{})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
	_, err := event.Decode([]byte(with("text.delta", `{"message_id":"m","delta":1}`)), event.Bounds{})
	if cause, ok := errors.AsType[*strictjson.Error](err); !ok || cause.Path != "/delta" {
		t.Errorf("the place is lost: %v", err)
	}
}

// A payload made in Go can be wrong in ways that no JSON text can.
func TestValidateAndEncodeRefuseWhatIsNoPayload(t *testing.T) {
	t.Parallel()
	var none *event.TextDelta
	for name, data := range map[string]event.Data{"nil": nil, "nil pointer": none, "pointer": &event.TextDelta{MessageID: "m", Delta: "w"}} {
		e := newMachine().Stamp(root(data), moment())
		if err := event.Validate(e, event.Bounds{}); err == nil {
			t.Errorf("%s is valid", name)
		}
		if text, err := event.Encode(e); err == nil {
			t.Errorf("%s is encoded as %s", name, text)
		}
		if err := newMachine().Accept(e); err == nil {
			t.Errorf("%s is accepted", name)
		}
		if e.Type() != "" {
			t.Errorf("%s has the type %q", name, e.Type())
		}
	}
	half := event.Object(`{"a":"` + strings.Repeat("w", event.MaxEventBytes/2) + `"}`)
	large := event.InterruptRequested{InterruptID: "i", InterruptType: event.InterruptToolApproval, AgentID: "a"}
	for _, id := range []string{"c", "d"} {
		large.ToolApprovals = append(large.ToolApprovals, event.ToolApproval{
			ToolCallID: id, ToolName: "t.t", ToolArgs: half, AllowedDecisions: []event.Decision{event.DecisionEdit},
		})
	}
	for name, data := range map[string]event.Data{
		"a large event":   large,
		"control":         event.ToolError{ToolCallID: "c", Code: "e", Message: "a\x1bb"},
		"no UTF-8":        event.TextDelta{MessageID: "m", Delta: "\xff"},
		"a surrogate":     event.TextDelta{MessageID: "m", Delta: "\xed\xa0\x80"},
		"no arguments":    event.ToolStarted{ToolCallID: "c", ToolName: "t.t"},
		"no JSON":         event.ToolStarted{ToolCallID: "c", ToolName: "t.t", Arguments: "{"},
		"no result":       event.ToolFinished{ToolCallID: "c"},
		"two results":     event.ToolFinished{ToolCallID: "c", Result: "1 2"},
		"details of null": event.Warning{Code: "w", Message: "m", Details: "null"},
		"no thread state": event.RunFinished{StopReason: "s", ThreadState: &event.ThreadState{}},
	} {
		if err := event.Validate(newMachine().Stamp(root(data), moment()), event.Bounds{}); err == nil {
			t.Errorf("%s is valid", name)
		}
	}
	for name, at := range map[string]time.Time{
		"no time": {}, "a year of five digits": time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), "a year before the first": time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		e := newMachine().Stamp(warning(), at)
		e.Sequence = 7
		if v, ok := errors.AsType[*event.ViolationError](event.Validate(e, event.Bounds{})); !ok || v.Field != "timestamp" || v.Sequence != 7 {
			t.Errorf("%s: %v", name, v)
		}
	}
}
