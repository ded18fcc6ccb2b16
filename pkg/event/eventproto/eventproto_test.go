package eventproto_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/event/eventtest"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
)

// Every event survives the wire, satisfies the rules that the schema states, and
// is encoded to the same JSON on the other side.
func TestEveryEventSurvivesTheWire(t *testing.T) {
	t.Parallel()
	for _, kind := range event.Types() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				e := eventtest.Event().Draw(t, "event")
				e.Data = eventtest.PayloadOf(t, kind)
				p, err := eventproto.ToProto(e)
				if err != nil {
					t.Fatal(err)
				}
				if err := protovalidate.Validate(p); err != nil {
					t.Fatalf("the schema refuses %+v: %v", e, err)
				}
				wire, err := proto.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				arrived := new(eventv1.Event)
				if err := proto.Unmarshal(wire, arrived); err != nil {
					t.Fatal(err)
				}
				got, err := eventproto.FromProto(arrived)
				if err != nil || !reflect.DeepEqual(got, e) {
					t.Fatalf("%+v became %+v: %v", e, got, err)
				}
				before, errBefore := event.Encode(e)
				after, errAfter := event.Encode(got)
				if errBefore != nil || errAfter != nil || string(before) != string(after) {
					t.Fatalf("%s became %s", before, after)
				}
			})
		})
	}
}

// valid is a message that is taken as it is.
func valid() *eventv1.Event {
	return &eventv1.Event{
		Version: 1, RunId: "run-1", ConversationId: "conversation-1", Sequence: 3, Timestamp: timestamppb.New(time.Unix(1_787_000_000, 0)),
		Data: &eventv1.Event_TextDelta{TextDelta: &eventv1.TextDelta{MessageId: "message-1", Delta: "word"}},
	}
}

func TestFromProtoRefuses(t *testing.T) {
	t.Parallel()
	if _, err := eventproto.FromProto(valid()); err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	delta := func(p *eventv1.Event) *eventv1.TextDelta { return p.GetTextDelta() }
	for name, c := range map[string]struct {
		change func(p *eventv1.Event)
		// inSchema: the rules of the schema refuse it too.
		inSchema bool
	}{
		"another version":             {func(p *eventv1.Event) { p.Version = 2 }, true},
		"no time":                     {func(p *eventv1.Event) { p.Timestamp = nil }, true},
		"no valid time":               {func(p *eventv1.Event) { p.Timestamp.Nanos = -1 }, false},
		"no payload":                  {func(p *eventv1.Event) { p.Data = nil }, true},
		"an empty payload":            {func(p *eventv1.Event) { p.Data = &eventv1.Event_RunError{} }, false},
		"an unknown field":            {func(p *eventv1.Event) { p.ProtoReflect().SetUnknown(unknown) }, false},
		"an unknown field below":      {func(p *eventv1.Event) { delta(p).ProtoReflect().SetUnknown(unknown) }, false},
		"no run":                      {func(p *eventv1.Event) { p.RunId = "" }, true},
		"a run id with a slash":       {func(p *eventv1.Event) { p.RunId = "a/b" }, true},
		"a run id with a line feed":   {func(p *eventv1.Event) { p.RunId = "a\n" }, true},
		"a run id that is too long":   {func(p *eventv1.Event) { p.RunId = strings.Repeat("r", 129) }, true},
		"a deep namespace":            {func(p *eventv1.Event) { p.Namespace = strings.Split("123456789", "") }, true},
		"a namespace of nothing":      {func(p *eventv1.Event) { p.Namespace = []string{""} }, true},
		"a large delta":               {func(p *eventv1.Event) { delta(p).Delta = strings.Repeat("w", event.MaxDeltaBytes+1) }, true},
		"an empty delta":              {func(p *eventv1.Event) { delta(p).Delta = "" }, true},
		"a control character":         {func(p *eventv1.Event) { delta(p).Delta = "\x1b" }, false},
		"arguments that are no JSON":  {func(p *eventv1.Event) { setArguments(p, `{"a"`) }, false},
		"arguments that are null":     {func(p *eventv1.Event) { setArguments(p, `null`) }, false},
		"arguments with a key twice":  {func(p *eventv1.Event) { setArguments(p, `{"a":1,"a":1}`) }, false},
		"no arguments":                {func(p *eventv1.Event) { setArguments(p, ``) }, true},
		"an unknown reason":           {func(p *eventv1.Event) { setCancel(p, "lunch", "none") }, true},
		"an unknown state of effects": {func(p *eventv1.Event) { setCancel(p, "deadline", "maybe") }, true},
		"usage over 2^53": {func(p *eventv1.Event) {
			p.Data = &eventv1.Event_UsageUpdated{UsageUpdated: &eventv1.UsageUpdated{InputTokens: proto.Uint64(1 << 53)}}
		}, true},
		"an interrupt that asks nothing": {func(p *eventv1.Event) {
			p.Data = &eventv1.Event_InterruptRequested{InterruptRequested: &eventv1.InterruptRequested{InterruptId: "i", AgentId: "a"}}
		}, true},
		"an approval of nothing": {func(p *eventv1.Event) {
			p.Data = &eventv1.Event_InterruptRequested{InterruptRequested: &eventv1.InterruptRequested{
				InterruptId: "i", AgentId: "a", Request: &eventv1.InterruptRequested_ToolApproval{ToolApproval: &eventv1.ToolApprovals{Approvals: []*eventv1.ToolApproval{nil}}},
			}}
		}, false},
	} {
		p := valid()
		c.change(p)
		e, err := eventproto.FromProto(p)
		if _, ok := errors.AsType[*event.ViolationError](err); !ok && !errors.Is(err, event.ErrEmptyDelta) {
			t.Errorf("%s: taken as %+v, %v", name, e, err)
		}
		if err := protovalidate.Validate(p); c.inSchema && err == nil {
			t.Errorf("%s: the schema lets it through", name)
		}
	}
	if _, err := eventproto.FromProto(nil); err == nil {
		t.Error("nil was taken")
	}
}

func setArguments(p *eventv1.Event, text string) {
	p.Data = &eventv1.Event_ToolStarted{ToolStarted: &eventv1.ToolStarted{ToolCallId: "c", ToolName: "t.t", Arguments: []byte(text)}}
}

func setCancel(p *eventv1.Event, reason, effects string) {
	p.Data = &eventv1.Event_RunCancelled{RunCancelled: &eventv1.RunCancelled{Reason: reason, SideEffectStatus: effects}}
}

func TestToProtoRefusesWhatIsNotValid(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]event.Event{
		"nothing":     {},
		"no payload":  {RunID: "r", ConversationID: "c", Timestamp: time.Unix(1, 0)},
		"bad payload": {RunID: "r", ConversationID: "c", Timestamp: time.Unix(1, 0), Data: event.TextStarted{}},
		"a pointer":   {RunID: "r", ConversationID: "c", Timestamp: time.Unix(1, 0), Data: &event.TextStarted{MessageID: "m"}},
	} {
		if p, err := eventproto.ToProto(e); err == nil {
			t.Errorf("%s became %v", name, p)
		}
	}
}

// FuzzFromProto: no bytes panic, and what is taken is an event that survives the
// wire.
func FuzzFromProto(f *testing.F) {
	seed, err := proto.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, wire []byte) {
		p := new(eventv1.Event)
		if proto.Unmarshal(wire, p) != nil {
			return
		}
		e, err := eventproto.FromProto(p)
		if err != nil {
			return
		}
		again, err := eventproto.ToProto(e)
		if err != nil || !proto.Equal(p, again) {
			t.Fatalf("%v became %v: %v", p, again, err)
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	e, err := eventproto.FromProto(valid())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p, err := eventproto.ToProto(e)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := eventproto.FromProto(p); err != nil {
			b.Fatal(err)
		}
	}
}
