package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
)

// anySandbox is the last segment of the text of [AnySandbox]. SPIFFE forbids "*" in an ID, so the two cannot meet.
const anySandbox = "*"

// Matcher matches SPIFFE IDs. The zero Matcher matches none. A Matcher is comparable and safe for concurrent use.
type Matcher struct {
	id      spiffeid.ID          // exactly this ID, or
	sandbox spiffeid.TrustDomain // every sandbox of this trust domain
}

// Exactly matches id alone. An id without a path matches nothing: a trust domain is not an identity.
func Exactly(id spiffeid.ID) Matcher {
	if id.Path() == "" {
		return Matcher{}
	}
	return Matcher{id: id}
}

// AnySandbox matches the workers of a trust domain: /sandbox/ and exactly one segment. Which of them may do what is
// decided by the capability, never by this list.
func AnySandbox(td spiffeid.TrustDomain) Matcher {
	return Matcher{sandbox: td}
}

// ParseMatcher reads the text of a Matcher: a SPIFFE ID with a path, or spiffe://<trust domain>/sandbox/*.
func ParseMatcher(s string) (Matcher, error) {
	if prefix, ok := strings.CutSuffix(s, sandboxPath+anySandbox); ok {
		id, err := spiffeid.FromString(prefix)
		if err != nil {
			return Matcher{}, fmt.Errorf("identity: allow list entry %q: %w", s, err)
		}
		if id.Path() != "" {
			return Matcher{}, fmt.Errorf("identity: allow list entry %q: only spiffe://<trust domain>/sandbox/* may end in *", s)
		}
		return AnySandbox(id.TrustDomain()), nil
	}
	id, err := spiffeid.FromString(s)
	if err != nil {
		return Matcher{}, fmt.Errorf("identity: allow list entry %q: %w", s, err)
	}
	if id.Path() == "" {
		return Matcher{}, fmt.Errorf("identity: allow list entry %q: name one identity, not a trust domain", s)
	}
	return Exactly(id), nil
}

// Match reports whether m matches id.
func (m Matcher) Match(id spiffeid.ID) bool {
	switch {
	case id.IsZero():
		return false
	case !m.id.IsZero():
		return m.id == id
	case !m.sandbox.IsZero():
		_, ok := InstanceUID(id)
		return ok && id.MemberOf(m.sandbox)
	default:
		return false
	}
}

// String returns the text that [ParseMatcher] reads, and "nobody" for the zero Matcher.
func (m Matcher) String() string {
	switch {
	case !m.id.IsZero():
		return m.id.String()
	case !m.sandbox.IsZero():
		return m.sandbox.IDString() + sandboxPath + anySandbox
	default:
		return "nobody"
	}
}

// AllowList names who may call. An empty or nil list refuses everybody.
type AllowList []Matcher

// ParseAllowList reads one entry of the list from each string, as [ParseMatcher] does. It reports every entry that is
// wrong.
func ParseAllowList(entries []string) (AllowList, error) {
	list := make(AllowList, 0, len(entries))
	var errs []error
	for _, s := range entries {
		m, err := ParseMatcher(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, m)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list, nil
}

// Check returns nil if an entry of the list matches id, else an error with the code caller_not_allowed.
func (l AllowList) Check(id spiffeid.ID) error {
	if slices.ContainsFunc(l, func(m Matcher) bool { return m.Match(id) }) {
		return nil
	}
	cause := fmt.Errorf("identity: %q is not in the allow list", id)
	if len(l) == 0 {
		cause = fmt.Errorf("identity: the allow list is empty, so nobody may call, and %q neither", id)
	}
	return fault.Wrap(cause, fault.CallerNotAllowed, "identity.AllowList.Check")
}
