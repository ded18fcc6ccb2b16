package rpc_test

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

// Nothing lists files: what a run has is what its manifests name. No answer holds more
// than one object, and each that holds one is to a request that names it, by its
// handle, its id or its SHA-256, or that made it.
func TestNoAnswerListsObjects(t *testing.T) {
	service := filebrokerv1.File_harness_filebroker_v1_filebroker_proto.Services().ByName("FileBrokerService")
	if service == nil || service.Methods().Len() == 0 {
		t.Fatal("the service has no methods")
	}
	names := map[protoreflect.Name]bool{"handle": true, "object_id": true, "content": true}
	for n := range service.Methods().Len() {
		m := service.Methods().Get(n)
		if field := repeated(m.Output()); field != "" {
			t.Errorf("%s answers with a list: %s", m.Name(), field)
		}
		named := false
		for i := range m.Input().Fields().Len() {
			f := m.Input().Fields().Get(i)
			named = named || names[f.Name()] && !f.IsList()
		}
		makes := m.IsStreamingClient() // it brings the content
		if !named && !makes {
			t.Errorf("%s asks for no object", m.Name())
		}
	}
}

// repeated is a field of a message, or of one within it, that may come several times.
func repeated(m protoreflect.MessageDescriptor) protoreflect.FullName {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.IsList() || f.IsMap() {
			return f.FullName()
		}
		if f.Message() != nil {
			if in := repeated(f.Message()); in != "" {
				return in
			}
		}
	}
	return ""
}
