package stack

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/deploy/local/internal/openfga"
	"cofferdam.dev/pkg/demomodel"
)

// The parts of a stack that are processes.
const (
	openFGA      = "openfga"
	capability   = "capability"
	toolBroker   = "toolbroker"
	stateFacade  = "statefacade"
	fileBroker   = "filebroker"
	modelProxy   = "modelproxy"
	controlPlane = "controlplane"
	// sandboxHost owns the sandboxes where there are several replicas.
	sandboxHost = "sandboxhost"
)

// services are those that have an identity, in the order in which they start.
func services() []string {
	return []string{capability, stateFacade, modelProxy, fileBroker, toolBroker, controlPlane}
}

// serveSandboxes are those that sandboxes may call. They have a Unix socket for
// that, besides the address for other services.
func serveSandboxes() []string {
	return []string{capability, stateFacade, modelProxy, fileBroker, toolBroker}
}

// How long a part may take to end after SIGTERM, and what it is told to leave open
// requests of that.
const (
	grace             = time.Second
	controlPlaneGrace = 2500 * time.Millisecond
	// sandboxHostGrace is for all sandboxes to end.
	sandboxHostGrace  = 2500 * time.Millisecond
	drain             = "500ms"
	controlPlaneDrain = "1s"
)

// The programs of the parts that are not named like them, and of what parts start.
const (
	openFGAProgram = "cofferdam-openfga"
	filesProgram   = "cofferdam-mcp-files"
	workerProgram  = "worker"
	// launcherProgram makes sandboxes.
	launcherProgram = "sandbox"
	runnerProgram   = "runner"
)

// programs are all that must be there.
func programs() []string {
	return append(services(), sandboxHost, openFGAProgram, filesProgram, workerProgram, launcherProgram, runnerProgram)
}

// part is a process that is kept running.
type part struct {
	name    string
	program string
	args    []string
	// listeners become descriptors 3, 4 and so on.
	listeners []listener
	// ready is a URL that answers 2xx once the part does its work.
	ready string
	grace time.Duration
	// ended is told when a life of the part is over; nil is told nothing.
	ended func()
}

// The order of every service's listeners. The control plane has two more, and
// those that sandboxes may call have one.
const (
	mainListener = iota
	adminListener
	publicListener
	operatorListener

	sandboxListener = publicListener
)

const firstDescriptor = 3

func inherited(listener int) string { return "fd://" + strconv.Itoa(firstDescriptor+listener) }

// openFGAPart is the OpenFGA server.
func (s *Stack) openFGAPart() part {
	l := s.listeners[openFGA]
	return part{
		name: openFGA, program: openFGAProgram, listeners: l, ready: l[mainListener].http() + "/healthz", grace: grace,
		args: []string{"--http-listen", inherited(mainListener), "--datastore", s.dir.OpenFGA(), "--preshared-key-file", s.dir.OpenFGAKey()},
	}
}

// servicePart is one of services, with the flags that all have and its own.
func (s *Stack) servicePart(name string, own ...string) part {
	return s.replicaPart(name, name, own...)
}

// replicaPart is the part name, which is one of perhaps several of a service.
func (s *Stack) replicaPart(service, name string, own ...string) part {
	l := s.listeners[name]
	listen := inherited(mainListener)
	if slices.Contains(serveSandboxes(), service) {
		listen += "," + inherited(sandboxListener)
	}
	args := []string{
		"--listen", listen, "--admin-listen", inherited(adminListener),
		"--workload-api", s.ids.address(service), "--trust-domain", s.ids.td.Name(), "--log-level", s.cfg.LogLevel,
	}
	if s.cfg.OTLPEndpoint != "" {
		args = append(args, "--otlp-endpoint", s.cfg.OTLPEndpoint)
	}
	return part{
		name: name, program: service, args: append(args, own...), listeners: l,
		ready: l[adminListener].http() + "/readyz", grace: grace,
	}
}

// address is where a service answers with mutual TLS.
func (s *Stack) address(name string) string { return s.listeners[name][mainListener].https() }

// keeper is where a service is told to keep what the flag names: in a file of the
// data folder, or in the one database.
func (s *Stack) keeper(flag, file string) []string {
	if s.cfg.Store != "" {
		return []string{flag, s.cfg.Store}
	}
	return []string{flag, file}
}

// contents is where a service is told to keep contents: in a folder, or in the one
// bucket, in which each has keys of its own.
func (s *Stack) contents(folder string) []string {
	if s.cfg.BlobURL != "" {
		return []string{"--blob-url", s.cfg.BlobURL, "--blob-credentials-file", s.cfg.BlobCredentialsFile}
	}
	return []string{"--blob-url", "file://" + folder}
}

// records is what every service is told of the committed records.
func (s *Stack) records() []string {
	args := s.keeper("--store", s.dir.Records())
	if s.cfg.StorePasswordFile != "" {
		args = append(args, "--store-password-file", s.cfg.StorePasswordFile)
	}
	return args
}

// verifier is what every service is told that verifies capabilities.
func (s *Stack) verifier() []string {
	return append(s.records(), "--drain-timeout", drain,
		"--capability-url", s.address(capability), "--capability-id", s.ids.capabilityID(), "--issuer", s.ids.capabilityID())
}

// authorizer is what a service is told that asks OpenFGA.
func (s *Stack) authorizer(fga openfga.IDs) []string {
	return []string{
		"--openfga-url", s.listeners[openFGA][mainListener].http(), "--openfga-store-id", fga.Store,
		"--openfga-model-id", fga.Model, "--openfga-key-file", s.dir.OpenFGAKey(),
	}
}

// serviceParts are all services in the order in which they start.
func (s *Stack) serviceParts(fga openfga.IDs) []part {
	all := map[string]part{
		capability: s.servicePart(capability, append(s.records(), "--drain-timeout", drain,
			"--key-file", s.dir.CapabilityKeys(), "--create-key", "--issuer", s.ids.capabilityID(),
			"--token-endpoints", strings.Join(s.catalogue.tokenEndpoints, ","))...),
		stateFacade: s.servicePart(stateFacade, s.stateFacadeArgs()...),
		modelProxy:  s.servicePart(modelProxy, append(s.verifier(), "--aliases", s.dir.Config("aliases"))...),
		fileBroker: s.servicePart(fileBroker, append(append(s.verifier(), s.keeper("--handle-store", s.dir.Handles())...),
			s.contents(s.dir.Files())...)...),
		toolBroker: s.servicePart(toolBroker, s.toolBrokerArgs(fga)...),
	}
	var out []part
	for _, name := range services() {
		if name == controlPlane {
			out = append(out, s.controlPlaneParts(fga)...)
			continue
		}
		out = append(out, all[name])
	}
	return out
}

// replicaNames are the names of the replicas of the control plane.
func (c Config) replicaNames() []string {
	names := []string{controlPlane}
	for i := 2; i <= c.Replicas; i++ {
		names = append(names, controlPlane+"-"+strconv.Itoa(i))
	}
	return names
}

// identityNames are the services that have an identity here.
func (c Config) identityNames() []string {
	if c.Replicas > 1 {
		return append(services(), sandboxHost)
	}
	return services()
}

// controlPlaneParts are the replicas, after the host of their sandboxes where there
// are several.
func (s *Stack) controlPlaneParts(fga openfga.IDs) []part {
	if s.cfg.Replicas == 1 {
		p := s.controlPlanePart(controlPlane, fga, s.sandboxes()...)
		// Its sandboxes end with it, and nobody is left to take their identities back.
		p.ended = s.ids.registrar.Reset
		return []part{p}
	}
	h := s.servicePart(sandboxHost, append(s.sandboxes(), "--drain-timeout", drain)...)
	h.grace = sandboxHostGrace
	h.ended = s.ids.registrar.Reset
	out := []part{h}
	for _, name := range s.cfg.replicaNames() {
		out = append(out, s.controlPlanePart(name, fga, "--sandbox", "host", "--sandbox-host", s.address(sandboxHost)))
	}
	return out
}

// sandboxes is what the owner of the sandboxes is told.
func (s *Stack) sandboxes() []string {
	args := []string{
		"--launcher", s.cfg.program(launcherProgram), "--worker", s.cfg.program(workerProgram), "--runner", s.cfg.program(runnerProgram),
		"--capability-issuer", s.ids.capabilityID(),
		"--registrar", s.registrar.https(), "--sandbox-sockets", s.sockets.services(), "--sandbox-dir", s.sockets.workers(),
		"--worker-logs", s.dir.WorkerLogs(), "--max-sandboxes", strconv.Itoa(s.cfg.MaxSandboxes), "--warm", strconv.Itoa(s.cfg.Warm),
	}
	if s.cfg.SandboxProfiles != "" {
		args = append(args, "--sandbox-profiles", s.cfg.SandboxProfiles)
	}
	if s.cfg.AllowWeakIsolation {
		args = append(args, "--allow-weak-isolation")
	}
	return args
}

// stateFacadeArgs: the demo model makes embeddings, and an endpoint of the operator's
// may not; without it searches rank by words.
func (s *Stack) stateFacadeArgs() []string {
	args := append(append(s.verifier(), s.keeper("--state-store", s.dir.ThreadState())...), s.contents(s.dir.Snapshots())...)
	if s.cfg.Model.BaseURL == "" {
		args = append(args, "--embedding-url", s.address(modelProxy), "--embedding-id", s.ids.modelProxyID(),
			"--embedding-alias", modelAlias, "--embedding-dimension", strconv.Itoa(demomodel.Dimension))
	}
	return args
}

func (s *Stack) toolBrokerArgs(fga openfga.IDs) []string {
	args := append(append(s.verifier(), s.authorizer(fga)...),
		"--catalogue", s.dir.Config("catalogue"), "--launcher", s.cfg.program(launcherProgram),
		"--audit-file", s.dir.Audit(), "--audit-key-file", s.dir.AuditKey(),
		"--file-broker-url", s.address(fileBroker), "--file-broker-id", s.ids.fileBrokerID(),
		"--controlplane-url", s.address(controlPlane), "--controlplane-id", s.ids.controlPlaneID())
	if s.cfg.AllowWeakIsolation {
		args = append(args, "--allow-weak-isolation")
	}
	return args
}

func (s *Stack) controlPlanePart(replica string, fga openfga.IDs, sandboxes ...string) part {
	own := append(append(append(s.authorizer(fga), s.records()...), sandboxes...),
		"--drain-timeout", controlPlaneDrain, "--replica", replica, "--id-key-file", s.dir.BindingKey(),
		"--agents", s.dir.Config("agents"),
		"--public-listen", inherited(publicListener), "--operator-listen", inherited(operatorListener),
		"--oidc-issuer", issuer.Name, "--oidc-audience", issuer.Audience, "--oidc-algorithms", issuer.Algorithm,
		"--oidc-jwks", s.dir.IssuerJWKS())
	if s.cfg.Agents != "" { // what they have lies beside the operator's file, not beside the copy
		own = append(own, "--agent-folder", filepath.Dir(s.cfg.Agents))
	}
	if t := s.cfg.TakeOverAfter; t > 0 {
		own = append(own, "--take-over-after", t.String(), "--beat-every", (t / beatsPerTakeOver).String())
	}
	if t := s.cfg.IdleAfter; t > 0 {
		own = append(own, "--idle-after", t.String())
	}
	for _, name := range []string{capability, toolBroker, fileBroker} {
		own = append(own, "--"+name, s.address(name))
	}
	p := s.replicaPart(controlPlane, replica, own...)
	p.grace = controlPlaneGrace
	return p
}
