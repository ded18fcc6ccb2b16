package wire

import (
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The checks of this package pass on descriptors that are right; here each is
// given one that is wrong.

type field struct {
	name   string
	number int32
	kind   descriptorpb.FieldDescriptorProto_Type
	of     string // type name of a message
	list   bool
	rules  *validate.FieldRules
}

func message(t *testing.T, fields ...field) protoreflect.MessageDescriptor {
	t.Helper()
	m := &descriptorpb.DescriptorProto{Name: new("M")}
	for _, f := range fields {
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		if f.list {
			label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		}
		d := &descriptorpb.FieldDescriptorProto{Name: &f.name, Number: &f.number, Type: &f.kind, Label: &label}
		if f.of != "" {
			d.TypeName = &f.of
		}
		if f.rules != nil {
			d.Options = &descriptorpb.FieldOptions{}
			proto.SetExtension(d.Options, validate.E_Field, f.rules)
		}
		m.Field = append(m.Field, d)
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("wrong.proto"), Package: new("wrong"), Syntax: new("proto3"),
		Dependency:  []string{"harness/fence/v1/envelope.proto", "harness/memory/v1/memory.proto"},
		MessageType: []*descriptorpb.DescriptorProto{m},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().Get(0)
}

const (
	asMessage = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	asString  = descriptorpb.FieldDescriptorProto_TYPE_STRING
	asBytes   = descriptorpb.FieldDescriptorProto_TYPE_BYTES
	asEnum    = descriptorpb.FieldDescriptorProto_TYPE_ENUM
	asNumber  = descriptorpb.FieldDescriptorProto_TYPE_UINT64
)

func required() *validate.FieldRules {
	return validate.FieldRules_builder{Required: new(true)}.Build()
}

func TestTheEnvelopeCheckSeesWhatIsWrong(t *testing.T) {
	right := field{name: "envelope", number: 1, kind: asMessage, of: ".harness.fence.v1.Envelope", rules: required()}
	if problem := unfenced(message(t, right)); problem != "" {
		t.Errorf("refused what is right: %s", problem)
	}
	change := func(f func(*field)) field {
		wrong := right
		f(&wrong)
		return wrong
	}
	for name, m := range map[string]protoreflect.MessageDescriptor{
		"none":         message(t),
		"other name":   message(t, change(func(f *field) { f.name = "env" })),
		"other number": message(t, change(func(f *field) { f.number = 2 })),
		"other type":   message(t, change(func(f *field) { f.of = ".harness.memory.v1.Record" })),
		"several":      message(t, change(func(f *field) { f.list = true })),
		"not required": message(t, change(func(f *field) { f.rules = nil })),
		"ignored": message(t, change(func(f *field) {
			f.rules = validate.FieldRules_builder{Required: new(true), Ignore: new(validate.Ignore_IGNORE_ALWAYS)}.Build()
		})),
	} {
		if unfenced(m) == "" {
			t.Errorf("%s: taken for fenced", name)
		}
	}
}

func TestTheBoundsCheckSeesWhatIsWrong(t *testing.T) {
	str := func(r validate.StringRules_builder) *validate.FieldRules {
		return validate.FieldRules_builder{String: r.Build()}.Build()
	}
	byt := func(r validate.BytesRules_builder) *validate.FieldRules {
		return validate.FieldRules_builder{Bytes: r.Build()}.Build()
	}
	rep := func(r validate.RepeatedRules_builder) *validate.FieldRules {
		return validate.FieldRules_builder{Repeated: r.Build()}.Build()
	}
	enum := func(r validate.EnumRules_builder) *validate.FieldRules {
		return validate.FieldRules_builder{Enum: r.Build()}.Build()
	}
	for name, c := range map[string]struct {
		f  field
		ok bool
	}{
		"number":                     {field{kind: asNumber}, true},
		"numbers":                    {field{kind: asNumber, list: true}, false},
		"bounded numbers":            {field{kind: asNumber, list: true, rules: rep(validate.RepeatedRules_builder{MaxItems: new(uint64(3))})}, true},
		"string":                     {field{kind: asString}, false},
		"only a least length":        {field{kind: asString, rules: str(validate.StringRules_builder{MinLen: new(uint64(1))})}, false},
		"max_len":                    {field{kind: asString, rules: str(validate.StringRules_builder{MaxLen: new(uint64(1))})}, true},
		"max_bytes":                  {field{kind: asString, rules: str(validate.StringRules_builder{MaxBytes: new(uint64(1))})}, true},
		"in":                         {field{kind: asString, rules: str(validate.StringRules_builder{In: []string{"a"}})}, true},
		"pattern":                    {field{kind: asString, rules: str(validate.StringRules_builder{Pattern: new("^[a-z]{1,64}/(b|c)?$")})}, true},
		"pattern that goes on":       {field{kind: asString, rules: str(validate.StringRules_builder{Pattern: new("^[a-z]+$")})}, false},
		"pattern that goes on, {2,}": {field{kind: asString, rules: str(validate.StringRules_builder{Pattern: new("^(a{2,}b)?$")})}, false},
		"pattern of a part":          {field{kind: asString, rules: str(validate.StringRules_builder{Pattern: new("[a-z]{1,64}$")})}, false},
		"pattern of one way out":     {field{kind: asString, rules: str(validate.StringRules_builder{Pattern: new("^a$|b")})}, false},
		"bytes":                      {field{kind: asBytes}, false},
		"bytes with a length":        {field{kind: asBytes, rules: byt(validate.BytesRules_builder{Len: new(uint64(32))})}, true},
		"bytes with a bound":         {field{kind: asBytes, rules: byt(validate.BytesRules_builder{MaxLen: new(uint64(32))})}, true},
		"strings, items unbounded":   {field{kind: asString, list: true, rules: rep(validate.RepeatedRules_builder{MaxItems: new(uint64(3))})}, false},
		"strings, list unbounded": {field{kind: asString, list: true, rules: rep(validate.RepeatedRules_builder{
			Items: str(validate.StringRules_builder{MaxLen: new(uint64(1))}),
		})}, false},
		"strings": {field{kind: asString, list: true, rules: rep(validate.RepeatedRules_builder{
			MaxItems: new(uint64(3)), Items: str(validate.StringRules_builder{MaxLen: new(uint64(1))}),
		})}, true},
		"enum":               {field{kind: asEnum, of: ".harness.memory.v1.Scope"}, false},
		"enum, only defined": {field{kind: asEnum, of: ".harness.memory.v1.Scope", rules: enum(validate.EnumRules_builder{DefinedOnly: new(true)})}, true},
		"ignored": {field{kind: asString, rules: validate.FieldRules_builder{
			Ignore: new(validate.Ignore_IGNORE_ALWAYS), String: validate.StringRules_builder{MaxLen: new(uint64(1))}.Build(),
		}.Build()}, false},
	} {
		c.f.name, c.f.number = "f", 1
		problem := unbounded(message(t, c.f).Fields().Get(0))
		if (problem == "") != c.ok {
			t.Errorf("%s: problem %q, bounded: %v", name, problem, c.ok)
		}
	}
}

// What stands two messages down is looked at as well.
func TestTheBoundsCheckLooksIntoMessages(t *testing.T) {
	w := walker{seen: map[protoreflect.FullName]bool{}, problems: map[protoreflect.FullName]string{}}
	w.message(message(t, field{name: "f", number: 1, kind: asMessage, of: ".harness.memory.v1.GetResponse"}))
	if w.problems["harness.memory.v1.Record.key"] == "" {
		t.Errorf("problems: %v", w.problems)
	}
}
