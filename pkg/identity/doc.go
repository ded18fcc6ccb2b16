// Package identity gives a process its SPIFFE identity and lets it talk only to peers that it names.
//
// Every hop between services is mutual TLS 1.3 with X.509-SVIDs. A [Source] holds the process's own SVID and the
// authorities of its own trust domain, and follows their rotation, from the SPIFFE Workload API or from files.
// [ServerTLS] admits the SPIFFE IDs of an [AllowList] and nobody else; [ClientTLS] and [HTTPClient] accept exactly one
// server ID, because a trust domain is not an identity.
//
// Everything here fails closed: an empty allow list refuses everybody, a zero SPIFFE ID equals nothing, another trust
// domain is never looked up, an SVID that has expired is not presented, and TLS sessions are never resumed, because a
// resumed session would skip the check of the peer.
//
// # Rotation
//
// A handshake takes the SVID and the authorities that are current at that moment. A connection keeps the identity that
// it was opened with: a stream outlives any number of rotations, also of the authority. [HTTPClient] opens a new
// connection for the first request after a rotation and lets the streams of the old one come to their end, so the age
// of an identity in use is bounded by the longest stream.
//
// # Names
//
// spiffe://<trust domain>/svc/<service> is a service, spiffe://<trust domain>/sandbox/<instance uid> the worker of one
// instance of a sandbox. See [Service] and [Sandbox].
//
// # Errors
//
// What is decided about a peer is a fault.Error: unauthenticated if it did not prove who it is, caller_not_allowed if it
// did and may not call. What goes wrong with the process's own identity is a plain error for the log. Both name SPIFFE
// IDs, and never keys or certificates.
package identity
