// Command vendor-validate writes the source text of buf/validate/validate.proto.
//
// Our proto files import it, and the registry that publishes it is not
// reachable from every machine that builds Cofferdam. The Go module with the
// generated code carries the descriptor, so the text is printed from that: it
// always is the version the Go code was generated from. `make generate` runs
// this, and `make check-generate` fails when the checked-in file is stale.
//
// Usage: vendor-validate FILE
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
)

// header keeps the licence under which protovalidate is published.
const header = `// Copyright 2023-2026 Buf Technologies, Inc.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//      http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

// Printed from the descriptor in the Go module of protovalidate by
// tools/protobuf/cmd/vendor-validate. DO NOT EDIT. What each rule means is
// documented at https://protovalidate.com/reference/rules/.

`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vendor-validate FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "vendor-validate:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	text, err := source()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// source is the file's text; `buf format` gives it its final shape.
func source() ([]byte, error) {
	var (
		text    bytes.Buffer
		printer protoprint.Printer
	)
	text.WriteString(header)
	if err := printer.PrintProtoFile(validate.File_buf_validate_validate_proto, &text); err != nil {
		return nil, fmt.Errorf("print descriptor: %w", err)
	}
	return text.Bytes(), nil
}
