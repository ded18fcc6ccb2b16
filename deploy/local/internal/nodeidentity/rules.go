package nodeidentity

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/strictjson"
)

// Bounds of a file of rules.
const (
	maxRulesFile = 64 << 10
	maxRules     = 64
	maxAccounts  = 64
)

// The kinds of identity that a rule can give.
const (
	// KindService is /svc/<service account>.
	KindService = "service"
	// KindSandbox is /sandbox/<pod uid>.
	KindSandbox = "sandbox"
)

// Rule says who the pods of some service accounts of one namespace are.
type Rule struct {
	Namespace string `json:"namespace"`
	// ServiceAccounts are exact names; there is no pattern.
	ServiceAccounts []string `json:"service_accounts"`
	// Identity is KindService or KindSandbox.
	Identity string `json:"identity"`
}

// Pod is what the kubelet says of one.
type Pod struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"service_account"`
}

// Rules turn pods into identities. They are made by ParseRules.
type Rules struct {
	td   spiffeid.TrustDomain
	kind map[account]string
}

type account struct{ namespace, name string }

// ErrNoIdentity says that no rule is about a pod.
var ErrNoIdentity = errors.New("nodeidentity: no rule gives this pod an identity")

var (
	// label is a DNS label, as a namespace is named.
	label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// podUID is a UUID, or the digest that a static pod has.
	podUID = regexp.MustCompile(`^[a-f0-9][a-f0-9-]{0,63}$`)
)

// LoadRules reads rules from a file.
func LoadRules(path string, td spiffeid.TrustDomain) (Rules, error) {
	f, err := os.Open(path)
	if err != nil {
		return Rules{}, fmt.Errorf("rules: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxRulesFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Rules{}, fmt.Errorf("rules: %w", err)
	}
	r, err := ParseRules(raw, td)
	if err != nil {
		return Rules{}, fmt.Errorf("rules: %s: %w", path, err)
	}
	return r, nil
}

// ParseRules reads {"rules": [RULE, …]}. A service has one namespace: a second one with an account of the same name would
// make its pods the same service.
func ParseRules(raw []byte, td spiffeid.TrustDomain) (Rules, error) {
	var doc struct {
		Rules []Rule `json:"rules"`
	}
	if err := strictjson.Unmarshal(raw, &doc, strictjson.Options{MaxBytes: maxRulesFile, RequireFields: true}); err != nil {
		return Rules{}, err
	}
	if td.IsZero() {
		return Rules{}, errors.New("a trust domain is required")
	}
	if len(doc.Rules) == 0 || len(doc.Rules) > maxRules {
		return Rules{}, fmt.Errorf("1 to %d rules are possible", maxRules)
	}
	out := Rules{td: td, kind: map[account]string{}}
	services := map[string]bool{}
	for i, r := range doc.Rules {
		if err := r.validate(); err != nil {
			return Rules{}, fmt.Errorf("rules[%d]: %w", i, err)
		}
		for _, name := range r.ServiceAccounts {
			a := account{r.Namespace, name}
			if _, twice := out.kind[a]; twice {
				return Rules{}, fmt.Errorf("rules[%d]: %s/%s is named twice", i, r.Namespace, name)
			}
			if r.Identity == KindService && services[name] {
				return Rules{}, fmt.Errorf("rules[%d]: the service %s has another namespace already", i, name)
			}
			services[name] = services[name] || r.Identity == KindService
			out.kind[a] = r.Identity
		}
	}
	return out, nil
}

func (r Rule) validate() error {
	if !label.MatchString(r.Namespace) {
		return errors.New("namespace: the name of one namespace")
	}
	if r.Identity != KindService && r.Identity != KindSandbox {
		return fmt.Errorf("identity: %q or %q", KindService, KindSandbox)
	}
	if len(r.ServiceAccounts) == 0 || len(r.ServiceAccounts) > maxAccounts {
		return fmt.Errorf("service_accounts: 1 to %d names", maxAccounts)
	}
	for _, name := range r.ServiceAccounts {
		if !label.MatchString(name) {
			return errors.New("service_accounts: exact names of at most 63 characters of [a-z0-9-]")
		}
	}
	return nil
}

// Identity is who a pod is, or ErrNoIdentity.
func (r Rules) Identity(p Pod) (spiffeid.ID, error) {
	if !podUID.MatchString(p.UID) {
		return spiffeid.ID{}, errors.New("nodeidentity: the uid of the pod is none")
	}
	switch r.kind[account{p.Namespace, p.ServiceAccount}] {
	case KindService:
		return identity.Service(r.td, p.ServiceAccount), nil
	case KindSandbox:
		return identity.Sandbox(r.td, p.UID), nil
	default:
		return spiffeid.ID{}, ErrNoIdentity
	}
}
