module cofferdam.dev/tests

go 1.26.0

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.1
	cofferdam.dev/pkg v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.25.0
	google.golang.org/protobuf v1.36.12
)

require github.com/stretchr/testify v1.12.1 // indirect

replace cofferdam.dev/pkg => ../pkg

// npm packages are no Go packages, whatever some of them ship.
ignore ./agui/node_modules
