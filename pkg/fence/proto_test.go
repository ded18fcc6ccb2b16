package fence_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
)

func TestEnvelopeRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9._:-]{0,128}`)
		want := fence.Envelope{
			BindingID: "hs_" + id.Draw(t, "binding"), Epoch: rapid.Uint32().Draw(t, "epoch"), Generation: rapid.Uint32().Draw(t, "generation"),
			RunID: id.Draw(t, "run"), RequestID: id.Draw(t, "request"), IdempotencyKey: id.Draw(t, "key"), Traceparent: id.Draw(t, "trace"),
			Deadline: time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC(),
		}
		raw, err := proto.Marshal(want.Proto())
		if err != nil {
			t.Fatal(err)
		}
		var p fencev1.Envelope
		if err := proto.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		got, err := fence.FromProto(&p)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestFromProtoRefuses(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		p    *fencev1.Envelope
		want fault.Code
	}{
		"none":             {nil, fault.InvalidRequest},
		"no version":       {&fencev1.Envelope{Deadline: timestamppb.New(now)}, fault.ProtocolUnsupported},
		"next version":     {&fencev1.Envelope{ProtocolVersion: 2, Deadline: timestamppb.New(now)}, fault.ProtocolUnsupported},
		"no deadline":      {&fencev1.Envelope{ProtocolVersion: 1}, fault.InvalidRequest},
		"invalid deadline": {&fencev1.Envelope{ProtocolVersion: 1, Deadline: &timestamppb.Timestamp{Nanos: -1}}, fault.InvalidRequest},
		"far deadline":     {&fencev1.Envelope{ProtocolVersion: 1, Deadline: &timestamppb.Timestamp{Seconds: 1 << 62}}, fault.InvalidRequest},
	} {
		if _, err := fence.FromProto(c.p); !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

// FuzzEnvelope: whatever bytes arrive, they are an envelope that means the same
// when it is sent on, or an error.
func FuzzEnvelope(f *testing.F) {
	raw, err := proto.Marshal(envelope().Proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte{8, 1, 74, 2, 8, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p fencev1.Envelope
		if proto.Unmarshal(raw, &p) != nil {
			return
		}
		e, err := fence.FromProto(&p)
		if err != nil {
			return
		}
		if again, err := fence.FromProto(e.Proto()); err != nil || again != e {
			t.Errorf("%+v becomes %+v, %v", e, again, err)
		}
	})
}
