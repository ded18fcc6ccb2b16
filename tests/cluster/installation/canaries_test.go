//go:build cluster

package installation

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
)

// Where credentials could be seen in and around a sandbox.
const (
	inEnvironment = "environment"
	inArguments   = "arguments"
	inFiles       = "mounts and files"
	inMemory      = "memory"
	inLogs        = "logs"
	inEvents      = "events of the runs"
	inObjects     = "objects and events of the namespace"
	inArtifacts   = "artifacts"
)

// No credential of a service is anywhere in a sandbox, while it works and afterwards: each of those in the Secrets of the
// installation, which the services mount and, of the model's and a tool's, show to others during the very run; the tokens of
// service accounts, and that of the caller. What a sandbox may hold is found in each of these places, so that the search is one,
// and so are credentials that are put there on purpose.
func TestNoCredentialIsInASandbox(t *testing.T) {
	i := installation.Shared(t, config)
	k := keep(t, i)
	keys := k.credentials(t)
	g := &guest{Talk: i.Talk(t, keptAgent), mark: "mark-" + rand.Text()}
	g.Files = []apiclient.File{{Name: "note.txt", MIMEType: "text/plain", Data: []byte(g.mark)}}
	name := "kept-" + rand.Text()
	g.run = g.Begin(t, fmt.Sprintf(">>say %s\n>>call %s.pass {\"name\":%q}", g.mark, keptTool, name))
	g.Calls(t, g.run, name)
	g.seat = i.Seat(t, g.run.BindingID)
	g.plant(t, "witness", g.mark)
	pod := k.watch(t, g)

	pod.judge(t, "while it works", keys, nil)
	if err := i.Gate.Open(name); err != nil {
		t.Fatal(err)
	}
	if r := g.End(t, g.run); r.Ending() != "run.finished" {
		t.Fatal(r)
	}
	pod.judge(t, "after its turn", keys, nil)
	k.wereShown(t)

	// The same again with a credential that the agent has got hold of: one that is made for this test, since it stays in the
	// artifacts. (The model proxy passes no answer on that has its own.)
	some := []string{"blob-credentials/credentials"}
	leak := keys[some[0]]
	g.plant(t, "leak", leak)
	g.Files = []apiclient.File{{Name: "leak.txt", MIMEType: "text/plain", Data: []byte(leak)}}
	g.run = g.Begin(t, ">>say "+leak)
	if r := g.End(t, g.run); r.Ending() != "run.finished" {
		t.Fatal(r)
	}
	pod.judge(t, "with one that was planted", keys, map[string][]string{inFiles: some, inMemory: some, inEvents: some, inArtifacts: some})
}

// A worker that crashes says what it was doing, and leaves no core.
func TestACrashShowsNoCredential(t *testing.T) {
	i := installation.Shared(t, config)
	k := keep(t, i)
	keys := k.credentials(t)
	g := busy(t, i, installation.Agent)
	pod := k.watch(t, g)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", g.Worker.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && fields[4] != "0" {
			t.Errorf("a worker may write a core: %s", line)
		}
	}
	volumes := filepath.Join(os.Getenv("CLUSTER_STATE"), "node/kubelet/pods", string(g.seat.Pod.UID), "volumes")
	if err := os.WriteFile(filepath.Join(g.root(), "workspace/core.witness"), append([]byte("\x7fELF"), make([]byte, 12)...), 0o600); err != nil {
		t.Fatal(err)
	}
	// What the pod leaves stays for as long as nobody can delete it.
	i.Cluster.Stop(t, "sandbox-controller")
	i.Cluster.Stop(t, "controller-manager")
	if err := syscall.Kill(g.Worker.PID, syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	installation.Until(t, "the end of the worker", func() (bool, error) { return syscall.Kill(g.Worker.PID, 0) != nil, nil })
	if found := programs(t, volumes); len(found) != 1 || filepath.Base(found[0]) != "core.witness" {
		t.Errorf("the crash left %q, beside the witness", found)
	}
	kube.Eventually(t, "the log of the crash", func(ctx context.Context) error {
		if log := pod.logs(ctx, t); !bytes.Contains(log, []byte("SIGABRT")) || !bytes.Contains(log, []byte("goroutine ")) {
			return fmt.Errorf("it does not tell: %.200s", log)
		}
		return nil
	})
	if found := keys.In(string(pod.logs(t.Context(), t))); len(found) > 0 {
		t.Errorf("the log of the crash shows %v", found)
	}
}

// programs are the paths of files in the format of cores.
func programs(t *testing.T, folder string) (found []string) {
	t.Helper()
	files, err := secrets.FilesUnder(folder, ".")
	if err != nil {
		t.Fatal(err)
	}
	for path, raw := range files {
		if bytes.HasPrefix(raw, []byte("\x7fELF")) {
			found = append(found, path)
		}
	}
	return found
}

// root is the worker's file system.
func (g *guest) root() string { return fmt.Sprintf("/proc/%d/root", g.Worker.PID) }

// plant writes a file into the sandbox.
func (g *guest) plant(t *testing.T, name, text string) {
	t.Helper()
	if g.Worker.PID == 0 {
		g.Worker = installation.Process(t, g.seat.Pod, "worker")
	}
	if err := os.WriteFile(filepath.Join(g.root(), "tmp", name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// watched is a sandbox that is looked into, from its node.
type watched struct {
	*keeper

	guest *guest
	pod   *corev1.Pod
	runs  []string // of its conversation
}

func (k *keeper) watch(t *testing.T, g *guest) *watched {
	t.Helper()
	return &watched{keeper: k, guest: g, pod: g.seat.Pod}
}

// judge looks everywhere for credentials, of which none may be there but those that are allowed, and for what is there.
func (w *watched) judge(t *testing.T, when string, keys secrets.Secrets, planted map[string][]string) {
	t.Helper()
	for where, witness := range map[string]string{
		inEnvironment: w.pod.Status.ContainerStatuses[0].ImageID[strings.Index(w.pod.Status.ContainerStatuses[0].ImageID, "sha256:"):],
		inArguments:   "--harness=native", inFiles: w.guest.mark, inMemory: w.guest.mark, inLogs: string(w.pod.UID), inEvents: w.guest.mark,
		inObjects: string(w.pod.UID), inArtifacts: w.guest.mark,
	} {
		all := maps.Clone(keys)
		all[witnessName] = witness
		found := w.look(t, where, all)
		for _, name := range found {
			if name != witnessName && !slices.Contains(planted[where], strings.TrimSuffix(strings.TrimSuffix(name, asBytes), asBase64)) {
				t.Errorf("%s: %s: %s", when, where, name)
			}
		}
		for _, name := range append([]string{witnessName}, planted[where]...) {
			if !slices.Contains(found, name) {
				t.Errorf("%s: %s lacks %s, so that the search shows nothing", when, where, name)
			}
		}
	}
}

const witnessName = "what has to be there"

// look gives the names of what stands in one place.
func (w *watched) look(t *testing.T, where string, keys secrets.Secrets) []string {
	t.Helper()
	switch where {
	case inEnvironment:
		return keys.In(string(w.ofProcesses(t, "environ")))
	case inArguments:
		return keys.In(string(w.ofProcesses(t, "cmdline")))
	case inFiles:
		return append(w.inTree(t, keys, w.guest.root()), keys.In(string(w.ofProcesses(t, "mountinfo")))...)
	case inMemory:
		return w.inMemory(t, keys)
	case inLogs:
		return keys.In(string(w.logs(t.Context(), t)))
	case inEvents:
		return keys.In(w.events(t))
	case inObjects:
		return keys.In(w.objects(t))
	case inArtifacts:
		var found []string
		for _, service := range []string{"filebroker", "statefacade"} {
			pid := installation.Process(t, w.Service(t, installation.System, service), service).PID
			found = append(found, w.inTree(t, keys, fmt.Sprintf("/proc/%d/root/objects", pid))...)
		}
		return found
	}
	t.Fatalf("there is no place %q", where)
	return nil
}

// ofProcesses reads one file of /proc for every process of the pod.
func (w *watched) ofProcesses(t *testing.T, file string) (all []byte) {
	t.Helper()
	for _, pid := range w.Cluster.Processes(t, w.pod) {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw...)
	}
	return all
}

// inTree looks through every file that a process has below a folder, but for the kernel's own.
func (w *watched) inTree(t *testing.T, keys secrets.Secrets, folder string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains([]string{"proc", "sys", "dev"}, e.Name()) {
			continue
		}
		var files map[string][]byte
		kube.Eventually(t, folder, func(context.Context) (err error) { // files come and go
			files, err = secrets.FilesUnder(folder, e.Name())
			return err
		})
		for _, raw := range files {
			found = append(found, keys.In(string(raw))...)
		}
	}
	return found
}

// inMemory looks through all mappings of all processes. Tokens of the run are there, and have to be.
func (w *watched) inMemory(t *testing.T, keys secrets.Secrets) (found []string) {
	t.Helper()
	for _, pid := range w.Cluster.Processes(t, w.pod) {
		texts := make([]string, 0, len(keys))
		for _, key := range keys {
			texts = append(texts, key)
		}
		there, err := procs.Holds(pid, texts...)
		if err != nil {
			t.Fatal(err)
		}
		for name, key := range keys {
			if slices.Contains(there, key) {
				found = append(found, name)
			}
		}
	}
	return found
}

// logs are those that the node keeps of the pod, and what the API server shows of them.
func (w *watched) logs(ctx context.Context, t *testing.T) (all []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("CLUSTER_STATE"), "node/logs", w.pod.Namespace+"_"+w.pod.Name+"_"+string(w.pod.UID), "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw...)
	}
	shown, err := w.Cluster.Client.CoreV1().Pods(w.pod.Namespace).GetLogs(w.pod.Name, &corev1.PodLogOptions{Container: "worker"}).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return append(all, shown...)
}

// events are those of all runs of the conversation so far.
func (w *watched) events(t *testing.T) string {
	t.Helper()
	if !slices.Contains(w.runs, w.guest.run.RunID) {
		w.runs = append(w.runs, w.guest.run.RunID)
	}
	var all strings.Builder
	for _, run := range w.runs {
		events, _, err := w.guest.Talk.User.Log(t.Context(), run, 500)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			all.Write(e.Raw)
			var said struct {
				Delta string `json:"delta"`
			}
			if json.Unmarshal(e.Data, &said) == nil {
				all.WriteString(said.Delta) // a word may be in two deltas
			}
		}
	}
	return all.String()
}

// objects is all that the namespace of the sandboxes has, as JSON.
func (w *watched) objects(t *testing.T) string {
	t.Helper()
	out := w.Kubectl(t, nil, "-n", installation.Sandboxes, "get", "-o", "json",
		"events,pods,configmaps,serviceaccounts,sandboxes.agents.x-k8s.io,sandboxclaims.extensions.agents.x-k8s.io,sandboxtemplates.extensions.agents.x-k8s.io")
	return string(out)
}

const (
	asBytes  = ", as bytes"
	asBase64 = ", in base64"
)

// credentials are those of every service: what stands in the Secrets, in each form in which it may be met, the tokens of the
// accounts that have one, and the caller's.
func (k *keeper) credentials(t *testing.T) secrets.Secrets {
	t.Helper()
	found := secrets.Secrets{"the caller's token": strings.TrimPrefix(k.User(t).Authorization(), "Bearer ")}
	all, err := k.Cluster.Client.CoreV1().Secrets(installation.System).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		for key, raw := range s.Data {
			for _, value := range secrets.KeysIn(raw) {
				name := s.Name + "/" + key
				found[name], found[name+asBase64] = value, base64.StdEncoding.EncodeToString([]byte(value))
				if b, err := hex.DecodeString(value); err == nil {
					found[name+asBytes] = string(b)
				} else if b, err := base64.RawURLEncoding.DecodeString(value); err == nil && len(b) == 32 {
					found[name+asBytes] = string(b)
				}
			}
		}
	}
	for service, program := range map[string]string{"controlplane": "controlplane", "resolver": "cofferdam-dns"} {
		pid := installation.Process(t, k.Service(t, installation.System, service), program).PID
		token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount/token", pid))
		if err != nil {
			t.Fatal(err)
		}
		found["the account of "+service] = string(token)
	}
	for _, name := range []string{
		"store-password/password", "capability-keys/keys.json", "openfga-key/key", "binding-id-key/key", "blob-credentials/credentials", "model-keys/kept", "tool-credentials/kept",
	} {
		if len(found[name]) < 16 {
			t.Fatalf("no credential %s", name)
		}
	}
	return found
}
