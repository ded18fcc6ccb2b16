package wire

import (
	"fmt"
	"maps"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	envelopeField = "envelope"
	envelopeType  = "harness.fence.v1.Envelope"
)

// unbound are procedures that change something which belongs to no binding, so that
// there is nothing that an envelope could name, with the reason why nobody needs to be
// kept out by one.
var unbound = map[protoreflect.FullName]string{
	"harness.filebroker.v1.FileBrokerService.PutContent":  "a content of an agent is what its SHA-256 says, whoever puts it and when",
	"harness.filebroker.v1.FileBrokerService.KeepContent": "it says for good that a version of an agent names a content; no worker may call it",
}

func TestWhateverChangesSomethingCarriesTheEnvelope(t *testing.T) {
	mutating, left := 0, maps.Clone(unbound)
	for _, m := range methods() {
		if readOnly(m) {
			continue
		}
		if reason, ok := left[m.FullName()]; ok {
			delete(left, m.FullName())
			if reason == "" || mentionsEnvelope(m.Input()) {
				t.Errorf("%s: no reason for its exception, or no need of it", m.FullName())
			}
			continue
		}
		mutating++
		if problem := unfenced(m.Input()); problem != "" {
			t.Errorf("%s: %s", m.FullName(), problem)
		}
	}
	if mutating == 0 || len(left) > 0 {
		t.Errorf("%d procedures change something; of the exceptions these are none: %v", mutating, left)
	}
}

// A read may need the fence as well; where one has the envelope, it has it in
// its place.
func TestAReadHasTheEnvelopeInItsPlaceOrNotAtAll(t *testing.T) {
	for _, m := range methods() {
		if !readOnly(m) || !mentionsEnvelope(m.Input()) {
			continue
		}
		if problem := unfenced(m.Input()); problem != "" {
			t.Errorf("%s: %s", m.FullName(), problem)
		}
	}
}

func mentionsEnvelope(m protoreflect.MessageDescriptor) bool {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Name() == envelopeField || (f.Message() != nil && f.Message().FullName() == envelopeType) {
			return true
		}
	}
	return false
}

// A client stream brings content to be kept.
func TestNoClientStreamIsCalledARead(t *testing.T) {
	for _, m := range methods() {
		if readOnly(m) && m.IsStreamingClient() {
			t.Errorf("%s: streams content in and is marked NO_SIDE_EFFECTS", m.FullName())
		}
	}
}

// Every frame of a worker's events is fenced on its own.
func TestEveryFrameOfAWorkerCarriesTheEnvelope(t *testing.T) {
	frames := 0
	for _, m := range methods() {
		if !m.IsStreamingServer() || m.Parent().Name() != "WorkerService" {
			continue
		}
		frames++
		f := m.Output().Fields().ByName("frame")
		if f == nil || f.Message() == nil {
			t.Errorf("%s: its answer has no frame", m.FullName())
			continue
		}
		if problem := unfenced(f.Message()); problem != "" {
			t.Errorf("%s: %s", m.FullName(), problem)
		}
	}
	if frames == 0 {
		t.Error("no procedure of the worker streams events")
	}
}

func readOnly(m protoreflect.MethodDescriptor) bool {
	o, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// unfenced says what a message lacks to carry the fencing envelope.
func unfenced(m protoreflect.MessageDescriptor) string {
	f := m.Fields().ByName(envelopeField)
	switch {
	case f == nil:
		return fmt.Sprintf("%s has no field %q; without it nothing keeps a replaced worker out", m.FullName(), envelopeField)
	case f.Number() != 1:
		return fmt.Sprintf("%s is number %d, want 1", f.FullName(), f.Number())
	case f.Message() == nil || f.Message().FullName() != envelopeType || f.IsList():
		return fmt.Sprintf("%s is not one %s", f.FullName(), envelopeType)
	case f.ContainingOneof() != nil:
		return fmt.Sprintf("%s can be left out for another field", f.FullName())
	case !rulesOf(f).GetRequired():
		return fmt.Sprintf("%s is not required by protovalidate", f.FullName())
	case rulesOf(f).GetIgnore() != validate.Ignore_IGNORE_UNSPECIFIED:
		return fmt.Sprintf("%s: its rules are ignored", f.FullName())
	}
	return ""
}

// rulesOf are the protovalidate rules of a field; never nil.
func rulesOf(f protoreflect.FieldDescriptor) *validate.FieldRules {
	if o := f.Options(); proto.HasExtension(o, validate.E_Field) {
		if r, ok := proto.GetExtension(o, validate.E_Field).(*validate.FieldRules); ok {
			return r
		}
	}
	return &validate.FieldRules{}
}
