// Package wire checks what protobuf promises of every service, by reflection
// over all that is generated: that whatever changes something carries the
// fencing envelope, and that whatever a peer may send is bounded.
//
// Its tests are checks of descriptors, so that a service which is added later
// cannot be forgotten; each check is shown to fail on a descriptor that breaks
// it.
package wire
