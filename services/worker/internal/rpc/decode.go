package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// wellKnown messages have a JSON form that is no object.
const wellKnown protoreflect.FullName = "google.protobuf"

// decode reads the body of a plain route: one JSON object with the field names
// of the protocol and no others, none of them twice. Parts that are a JSON object
// themselves (the options of a harness, the schema of a tool, the contexts of
// user and client) stand as that object, or as base64, which is how protobuf has
// bytes in JSON. Errors: invalid_request, request_too_large.
func decode(raw []byte, most int, m proto.Message) error {
	const op = "rpc.decode"
	if len(raw) > most {
		return fault.New(fault.RequestTooLarge, op)
	}
	// A schema stands in a tool in a list in the request. Names that differ in case
	// only are for canonical to refuse, where they are the protocol's.
	o := strictjson.Options{MaxBytes: most, MaxDepth: maxSchemaDepth + 3, AllowCaseVariants: true}
	if err := strictjson.Check(raw, o); err != nil {
		return fault.Wrap(err, fault.InvalidRequest, op, fault.Detail("body: "+err.Error()))
	}
	text, err := canonical(raw, m.ProtoReflect().Descriptor(), "body")
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return fault.Wrap(err, fault.InvalidRequest, op, fault.Detail("body: a field has another type than the request's"))
	}
	return nil
}

// canonical gives the JSON that protojson takes for a message, and refuses names
// that are not the protocol's: protojson would take a second spelling of each.
func canonical(raw json.RawMessage, d protoreflect.MessageDescriptor, path string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, invalid(path + ": one JSON object")
	}
	for name, value := range members {
		field := d.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return nil, invalid(path + ": unknown field")
		}
		var err error
		if members[name], err = canonicalField(value, field, path+"."+name); err != nil {
			return nil, err
		}
	}
	out, err := json.Marshal(members)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "rpc.decode")
	}
	return out, nil
}

func canonicalField(value json.RawMessage, field protoreflect.FieldDescriptor, path string) (json.RawMessage, error) {
	message := field.Message()
	switch {
	case string(value) == "null":
		return nil, invalid(path + ": leave out what is absent")
	case field.Kind() == protoreflect.BytesKind && opens(value, '{'):
		return json.Marshal(base64.StdEncoding.EncodeToString(value))
	case message == nil || message.ParentFile().Package() == wellKnown:
		return value, nil
	case !field.IsList():
		return canonical(value, message, path)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil {
		return nil, invalid(path + ": a list")
	}
	for i, item := range items {
		var err error
		if items[i], err = canonical(item, message, path+"[]"); err != nil {
			return nil, err
		}
	}
	return json.Marshal(items)
}

func opens(value json.RawMessage, with byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && value[0] == with
}

func invalid(detail string) error {
	return fault.New(fault.InvalidRequest, "rpc.decode", fault.Detail(detail))
}
