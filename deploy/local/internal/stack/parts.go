package stack

import (
	"slices"
	"strconv"
	"time"

	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/deploy/local/internal/openfga"
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
	return append(services(), openFGAProgram, filesProgram, workerProgram, launcherProgram, runnerProgram)
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
	l := s.listeners[name]
	listen := inherited(mainListener)
	if slices.Contains(serveSandboxes(), name) {
		listen += "," + inherited(sandboxListener)
	}
	args := []string{
		"--listen", listen, "--admin-listen", inherited(adminListener),
		"--workload-api", s.ids.address(name), "--trust-domain", s.ids.td.Name(), "--log-level", s.cfg.LogLevel,
	}
	return part{
		name: name, program: name, args: append(args, own...), listeners: l,
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
			"--key-file", s.dir.CapabilityKeys(), "--create-key", "--issuer", s.ids.capabilityID())...),
		stateFacade: s.servicePart(stateFacade, append(append(s.verifier(), s.keeper("--state-store", s.dir.ThreadState())...),
			"--blob-url", "file://"+s.dir.Snapshots())...),
		modelProxy: s.servicePart(modelProxy, append(s.verifier(), "--aliases", s.dir.Config("aliases"))...),
		fileBroker: s.servicePart(fileBroker, append(append(s.verifier(), s.keeper("--handle-store", s.dir.Handles())...),
			"--blob-url", "file://"+s.dir.Files())...),
		toolBroker: s.servicePart(toolBroker, append(append(s.verifier(), s.authorizer(fga)...),
			"--catalogue", s.dir.Config("catalogue"),
			"--audit-file", s.dir.Audit(), "--audit-key-file", s.dir.AuditKey(),
			"--file-broker-url", s.address(fileBroker), "--file-broker-id", s.ids.fileBrokerID())...),
		controlPlane: s.controlPlanePart(fga),
	}
	out := make([]part, 0, len(all))
	for _, name := range services() {
		out = append(out, all[name])
	}
	return out
}

func (s *Stack) controlPlanePart(fga openfga.IDs) part {
	own := append(append(s.authorizer(fga), s.records()...),
		"--drain-timeout", controlPlaneDrain, "--id-key-file", s.dir.BindingKey(),
		"--agents", s.dir.Config("agents"),
		"--public-listen", inherited(publicListener), "--operator-listen", inherited(operatorListener),
		"--oidc-issuer", issuer.Name, "--oidc-audience", issuer.Audience, "--oidc-algorithms", issuer.Algorithm,
		"--oidc-jwks", s.dir.IssuerJWKS(),
		"--launcher", s.cfg.program(launcherProgram), "--worker", s.cfg.program(workerProgram), "--runner", s.cfg.program(runnerProgram),
		"--capability-issuer", s.ids.capabilityID(),
		"--registrar", s.registrar.https(), "--sandbox-sockets", s.sockets.services(), "--sandbox-dir", s.sockets.workers(),
		"--worker-logs", s.dir.WorkerLogs(), "--max-sandboxes", strconv.Itoa(s.cfg.MaxSandboxes), "--warm", strconv.Itoa(s.cfg.Warm))
	if s.cfg.SandboxProfiles != "" {
		own = append(own, "--sandbox-profiles", s.cfg.SandboxProfiles)
	}
	for _, name := range []string{capability, toolBroker, fileBroker} {
		own = append(own, "--"+name, s.address(name))
	}
	if s.cfg.AllowWeakIsolation {
		own = append(own, "--allow-weak-isolation")
	}
	p := s.servicePart(controlPlane, own...)
	p.grace = controlPlaneGrace
	// Its sandboxes end with it, and nobody is left to take their identities back.
	p.ended = s.ids.registrar.Reset
	return p
}
