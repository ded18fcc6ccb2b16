package main

import (
	"bytes"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// What is printed must mean what the Go code was generated from: a rule that
// got lost in printing would be a bound that nobody checks.
func TestSourceCompilesToTheDescriptor(t *testing.T) {
	text, err := source()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("Licensed under the Apache License, Version 2.0")) {
		t.Error("the licence is missing")
	}
	const name = "buf/validate/validate.proto"
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{name: string(text)}),
	})}
	files, err := compiler.Compile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(validate.File_buf_validate_validate_proto)
	if got := normalize(t, protodesc.ToFileDescriptorProto(files.FindFileByPath(name))); !proto.Equal(got, normalize(t, want)) {
		t.Error("the printed source compiles to another descriptor")
	}
}

// normalize makes option values comparable: one side holds some of them as
// messages of another Go type, or as bytes that were not decoded.
func normalize(t *testing.T, file *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	t.Helper()
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	normal := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(wire, normal); err != nil {
		t.Fatal(err)
	}
	normal.SourceCodeInfo = nil
	return normal
}
