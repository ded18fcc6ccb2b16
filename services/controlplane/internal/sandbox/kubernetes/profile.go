package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox/signature"
)

// Bounds and defaults of the values of a profile.
const (
	maxProfiles    = 64
	maxClaims      = 1 << 16
	maxLifetime    = 30 * 24 * time.Hour
	defaultLife    = 24 * time.Hour
	defaultMax     = 1000
	workerName     = "worker"
	agentName      = "agent"
	workerAccount  = "worker"
	maxInits       = 4
	digestDivider  = "@"
	maxDescription = harnesses.MaxBytes
)

var (
	profilePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	harnessPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)
	imagePattern   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/-]{0,255}@sha256:[0-9a-f]{64}$`)
)

// Profile is a kind of sandbox that the operator allows: what has to answer to a claim
// before anything is sent to it. Everything else is refused.
type Profile struct {
	Name string `json:"name"`
	// Harness is the id of the one harness that runs in it.
	Harness string `json:"harness"`
	// WarmPool is the SandboxWarmPool that is claimed from, and Template the
	// SandboxTemplate that its sandboxes are made of.
	WarmPool string `json:"warm_pool"`
	Template string `json:"template"`
	// WorkerContainer is the container of the worker; "worker" by default.
	WorkerContainer string `json:"worker_container,omitempty"`
	// Image is what it runs, name@sha256:….
	Image string `json:"image"`
	// InitContainers may run before it, from the worker's image; they end first.
	InitContainers []string `json:"init_containers,omitempty"`
	// AgentImage is what the container of a hosted program runs, pinned the same way;
	// empty is no such container. AgentContainer is its name, "agent" by default.
	AgentImage     string `json:"agent_image,omitempty"`
	AgentContainer string `json:"agent_container,omitempty"`
	// RuntimeClass of the pod; empty is the node's own runtime, and no other.
	RuntimeClass string `json:"runtime_class"`
	// ServiceAccount of the pod, whose token is never mounted; "worker" by default.
	ServiceAccount string `json:"service_account,omitempty"`
	// PersistentVolumes lets the pod have claims of volumes; off by default.
	PersistentVolumes bool `json:"persistent_volumes,omitempty"`
	// DescriptionFile is what `worker describe --harness X` printed.
	DescriptionFile string `json:"description_file"`
	// Signature is of Image, and AgentSignature of AgentImage. Unsigned does without
	// both, which is a weakness.
	Signature      *SignatureFiles `json:"signature,omitempty"`
	AgentSignature *SignatureFiles `json:"agent_signature,omitempty"`
	Unsigned       bool            `json:"unsigned,omitempty"`
	// ColdStart lets a claim wait for a sandbox that is made for it where the pool has
	// none. Without it such a claim is told to come again.
	ColdStart bool `json:"cold_start,omitempty"`
	// Max is how many claims of the profile may be there at once, 1000 by default.
	// One replica keeps to it. Several that claim at the same moment can exceed it by
	// what each of them is about to claim; the quota of the namespace is what is exact.
	Max int `json:"max,omitempty"`
	// LifetimeSeconds is how long a sandbox may live after it was claimed; a day by
	// default.
	LifetimeSeconds int64 `json:"lifetime_seconds,omitempty"`
	// Disabled switches the profile off.
	Disabled bool `json:"disabled,omitempty"`

	signature, agentSignature *signature.Signature
	entry                     harnesses.Entry
}

// SignatureFiles are a Sigstore bundle and the key that has to have made it.
type SignatureFiles struct {
	BundleFile    string `json:"bundle_file"`
	PublicKeyFile string `json:"public_key_file"`
}

func (p *Profile) lifetime() time.Duration { return time.Duration(p.LifetimeSeconds) * time.Second }

// digest is that of the worker's image.
func (p *Profile) digest() string { return digestOf(p.Image) }

// digestOf gives sha256:… of a reference that names one, else "".
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, digestDivider)
	return digest
}

// LoadProfiles reads {"profiles": […]} from a JSON file of at most 1 MiB, and the
// files that it names. Signatures are verified here for the first time: a control
// plane does not start with an image that its operator has not signed.
func LoadProfiles(path string) ([]Profile, error) {
	raw, err := readFile(path, strictjson.DefaultMaxBytes)
	if err != nil {
		return nil, fmt.Errorf("sandbox profiles: %w", err)
	}
	profiles, err := ParseProfiles(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var errs []error
	for i := range profiles {
		if err := profiles[i].load(); err != nil {
			errs = append(errs, fmt.Errorf("sandbox profile %q: %w", profiles[i].Name, err))
		}
	}
	return profiles, errors.Join(errs...)
}

// ParseProfiles is LoadProfiles without the files that a profile names. The error
// names everything that is wrong.
func ParseProfiles(raw []byte) ([]Profile, error) {
	var doc struct {
		Profiles []Profile `json:"profiles"`
	}
	if err := strictjson.Unmarshal(raw, &doc, strictjson.Options{}); err != nil {
		return nil, fmt.Errorf("sandbox profiles: %w", err)
	}
	var errs []error
	if n := len(doc.Profiles); n < 1 || n > maxProfiles {
		errs = append(errs, fmt.Errorf("profiles: 1 to %d of them", maxProfiles))
	}
	seen := map[string]bool{}
	for i := range doc.Profiles {
		p := &doc.Profiles[i]
		p.setDefaults()
		if err := p.validate(); err != nil {
			errs = append(errs, fmt.Errorf("profiles[%d]: %w", i, err))
		}
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("profiles[%d]: name %q stands twice", i, p.Name))
		}
		seen[p.Name] = true
	}
	return doc.Profiles, errors.Join(errs...)
}

func (p *Profile) setDefaults() {
	orDefault(&p.WorkerContainer, workerName)
	orDefault(&p.ServiceAccount, workerAccount)
	orDefault(&p.Max, defaultMax)
	orDefault(&p.LifetimeSeconds, int64(defaultLife/time.Second))
	if p.AgentImage != "" {
		orDefault(&p.AgentContainer, agentName)
	}
}

func orDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func (p *Profile) validate() error {
	var errs []error
	for _, rule := range []struct {
		ok   bool
		text string
	}{
		{profilePattern.MatchString(p.Name), "name: 1 to 64 characters of [A-Za-z0-9._-]"},
		{harnessPattern.MatchString(p.Harness), "harness: 2 to 64 characters of [a-z0-9_], a letter first"},
		{objectName(p.WarmPool), "warm_pool: the name of a SandboxWarmPool"},
		{objectName(p.Template), "template: the name of a SandboxTemplate"},
		{containerName(p.WorkerContainer), "worker_container: the name of a container"},
		{imagePattern.MatchString(p.Image), "image: name@sha256:…, pinned by its digest and without a tag"},
		{len(p.InitContainers) <= maxInits && !slices.ContainsFunc(p.InitContainers, func(n string) bool { return !containerName(n) }), "init_containers: at most 4 names of containers"},
		{p.AgentImage == "" || imagePattern.MatchString(p.AgentImage), "agent_image: name@sha256:…, pinned by its digest"},
		{(p.AgentImage == "") == (p.AgentContainer == ""), "agent_container: only with agent_image"},
		{p.AgentImage == "" || containerName(p.AgentContainer) && p.AgentContainer != p.WorkerContainer, "agent_container: the name of another container than worker_container"},
		{p.RuntimeClass == "" || objectName(p.RuntimeClass), "runtime_class: the name of a RuntimeClass, or empty"},
		{objectName(p.ServiceAccount) && p.ServiceAccount != "default", "service_account: the name of a service account of its own, not default"},
		{p.DescriptionFile != "", "description_file: required, what `worker describe --harness X` prints"},
		{p.Unsigned != (p.Signature != nil), "signature: required, with bundle_file and public_key_file; or \"unsigned\": true, which is a weakness"},
		{p.Signature.whole() && p.AgentSignature.whole(), "signature: both bundle_file and public_key_file"},
		{(p.AgentSignature != nil) == (p.AgentImage != "" && !p.Unsigned), "agent_signature: required where there is an agent_image, unless unsigned, and nowhere else"},
		{p.Max >= 1 && p.Max <= maxClaims, "max: 1 to 65536"},
		{p.LifetimeSeconds >= 1 && p.LifetimeSeconds <= int64(maxLifetime/time.Second), "lifetime_seconds: 1 to 2592000"},
	} {
		if !rule.ok {
			errs = append(errs, errors.New(rule.text))
		}
	}
	return errors.Join(errs...)
}

func (s *SignatureFiles) whole() bool { return s == nil || s.BundleFile != "" && s.PublicKeyFile != "" }

func objectName(s string) bool    { return len(validation.IsDNS1123Subdomain(s)) == 0 }
func containerName(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// load reads what the profile names, and verifies the signatures.
func (p *Profile) load() error {
	raw, err := readFile(p.DescriptionFile, maxDescription)
	if err != nil {
		return fmt.Errorf("description_file: %w", err)
	}
	if p.entry, err = harnesses.Parse(p.Name, !p.Disabled, p.Harness, raw); err != nil {
		return fmt.Errorf("description_file: %w", err)
	}
	if p.signature, err = p.Signature.load(p.Image); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	if p.agentSignature, err = p.AgentSignature.load(p.AgentImage); err != nil {
		return fmt.Errorf("agent_signature: %w", err)
	}
	return nil
}

func (s *SignatureFiles) load(image string) (*signature.Signature, error) {
	if s == nil {
		return nil, nil
	}
	sig, err := signature.Load(s.BundleFile, s.PublicKeyFile)
	if err != nil {
		return nil, err
	}
	if err := sig.Verify(digestOf(image)); err != nil {
		return nil, fmt.Errorf("%s: %w", s.BundleFile, err)
	}
	return sig, nil
}

func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return raw, err
}
