// Package capability has what a capability says and the one place where it is
// verified (Sandbox Worker Protocol v1, "Authorization").
//
// A capability is a signed token for one sandbox, one audience, and one run of
// one generation of one binding. It is a compact JWS (RFC 7515) that carries a
// JWT (RFC 7519):
//
//   - header: exactly typ "cap+jwt", alg "EdDSA" (Ed25519), and kid. Any other
//     member is refused, so nothing in a token can choose an algorithm, bring its
//     own key (jwk, jku, x5c) or ask for an extension (crit, b64);
//   - payload: exactly the claims of [Claims], each once. aud is one string. A
//     claim that belongs to another audience makes the token invalid.
//
// A service that was called with a sandbox's capability can exchange it for a
// narrower one of its own (sub), with the sandbox as act: for one other audience,
// by a list of pairs, for the same run, and never for longer. It cannot be
// exchanged again.
//
// # What a receiver checks
//
// In this order, and before it decodes a body: the TLS peer is in its list; the
// token is well formed, with typ, algorithm, key, iss, one exact aud, and times;
// sub is the sandbox that has to stand behind it ([Verifier.Verify]); the
// envelope is what the token is for ([Claims.Matches]); and then the fence
// (package fence). A lost or replayed token is worth nothing without the private
// key of the sandbox, and nothing after the lease is replaced.
//
// # No cache of verdicts
//
// Only public keys are cached, by [RemoteKeys]. A verdict never is: a verified
// token stands beside a database fence that costs more, and what is not
// remembered cannot outlive a withdrawal.
//
// # No minting
//
// Nothing here can sign, and a test keeps it so: every worker links this package.
// Minting belongs to the capability service alone.
package capability
