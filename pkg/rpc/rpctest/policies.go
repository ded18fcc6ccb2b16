package rpctest

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"cofferdam.dev/pkg/rpc"
)

// Policies are those of a server in a test, and for each further procedure of the
// services one that refuses everybody: a test names what it is about.
func Policies(p map[string]rpc.Policy, services ...protoreflect.FileDescriptor) map[string]rpc.Policy {
	for _, file := range services {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				procedure := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(j).Name())
				if _, named := p[procedure]; !named {
					p[procedure] = rpc.Policy{}
				}
			}
		}
	}
	return p
}
