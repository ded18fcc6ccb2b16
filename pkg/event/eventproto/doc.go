// Package eventproto converts canonical events to and from their protobuf
// messages, strictly both ways: nothing that event.Validate refuses comes
// through, and neither does a field that this version does not know.
package eventproto
