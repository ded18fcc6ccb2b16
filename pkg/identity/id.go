package identity

import (
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	servicePath = "/svc/"
	sandboxPath = "/sandbox/"

	maxSegment = 128 // bytes of a service name or an instance uid
)

// Service returns the SPIFFE ID of a service, spiffe://<td>/svc/<name>. The name is 1 to 128 bytes of [A-Za-z0-9._-]
// and neither "." nor "..". Anything else, or a zero trust domain, gives the zero ID, which no function of this
// package accepts as an identity.
func Service(td spiffeid.TrustDomain, name string) spiffeid.ID {
	return fromSegment(td, servicePath, name)
}

// Sandbox returns the SPIFFE ID of the worker in one instance of a sandbox, spiffe://<td>/sandbox/<instanceUID>. An
// instanceUID that [ValidInstanceUID] refuses, or a zero trust domain, gives the zero ID, which no function of this
// package accepts as an identity.
func Sandbox(td spiffeid.TrustDomain, instanceUID string) spiffeid.ID {
	return fromSegment(td, sandboxPath, instanceUID)
}

// InstanceUID returns the instance uid of a sandbox's SPIFFE ID, whatever its trust domain. It reports false for every
// ID that is not /sandbox/ and exactly one segment that [ValidInstanceUID] accepts.
func InstanceUID(id spiffeid.ID) (string, bool) {
	uid, ok := strings.CutPrefix(id.Path(), sandboxPath)
	if !ok || !ValidInstanceUID(uid) {
		return "", false
	}
	return uid, true
}

// IsService reports whether id is that of a service, of whatever trust domain: /svc/ and exactly one segment.
func IsService(id spiffeid.ID) bool {
	name, ok := strings.CutPrefix(id.Path(), servicePath)
	return ok && ValidInstanceUID(name)
}

// ValidInstanceUID reports whether uid can name an instance of a sandbox: 1 to 128 bytes of [A-Za-z0-9._-], and
// neither "." nor "..", which SPIFFE forbids as segments.
func ValidInstanceUID(uid string) bool {
	if uid == "" || len(uid) > maxSegment {
		return false
	}
	// SPIFFE allows exactly [A-Za-z0-9._-] in a segment; go-spiffe alone can be switched to allow more, so the
	// alphabet stands here as well.
	for i := range len(uid) {
		c := uid[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return uid != "." && uid != ".."
}

func fromSegment(td spiffeid.TrustDomain, prefix, segment string) spiffeid.ID {
	if !ValidInstanceUID(segment) {
		return spiffeid.ID{}
	}
	id, err := spiffeid.FromPath(td, prefix+segment)
	if err != nil { // a zero trust domain
		return spiffeid.ID{}
	}
	return id
}
