// Package kube is how the tests use the cluster that deploy/cluster started: clients
// of its API, its images, its node and its parts.
//
// Everything here ends the test when it fails, and waits without a limit on speed:
// patience is the bound on what never happens.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// Patience is how long Eventually waits.
const Patience = 2 * time.Minute

// Host is the address of the cluster's machine, where the tests run: what listens
// on it stands for the rest of the world.
const Host = "10.200.0.1"

// RuntimeClass is what the sandboxes of the tests run on: gvisor with GVISOR=1, which has deploy/cluster make it, and
// otherwise "", the node's own.
func RuntimeClass() string {
	if os.Getenv("GVISOR") == "1" {
		return "gvisor"
	}
	return ""
}

// An Image is one that `make images` built.
type Image struct {
	Name      string
	Digest    string // sha256:...
	Reference string // NAME@sha256:...
	Archive   string // files: absolute paths
	Bundle    string
	SBOM      string
}

// Cluster is the running cluster.
type Cluster struct {
	Config  *rest.Config
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	mapper  *restmapper.DeferredDiscoveryRESTMapper
	scripts string
	images  []Image
}

// Connect is how a test begins. It fails outside deploy/cluster/enter.sh.
func Connect(t testing.TB) *Cluster {
	t.Helper()
	for _, name := range []string{"CLUSTER_STATE", "CLUSTER_SCRIPTS", "CLUSTER_IMAGES", "KUBECONFIG"} {
		if os.Getenv(name) == "" {
			t.Fatalf("%s is not set: run `make test-cluster`", name)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	// A test is no controller: it need not be slow.
	config.QPS, config.Burst = 200, 400
	c := connect(t, config)
	c.scripts = os.Getenv("CLUSTER_SCRIPTS")
	c.images = readImages(t, os.Getenv("CLUSTER_IMAGES"))
	return c
}

func connect(t testing.TB, config *rest.Config) *Cluster {
	t.Helper()
	c := &Cluster{Config: config}
	var err error
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	return c
}

// As is the cluster for somebody with fewer rights: a user, or a service account
// as system:serviceaccount:NAMESPACE:NAME.
func (c *Cluster) As(t testing.TB, user string) *Cluster {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(rest, ":")
		config.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	limited := connect(t, config)
	limited.scripts, limited.images = c.scripts, c.images
	return limited
}

// readImages reads images.json of `make images`.
func readImages(t testing.TB, path string) []Image {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var images []Image
	if err := json.Unmarshal(text, &images); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(path)
	for i := range images {
		for _, file := range []*string{&images[i].Archive, &images[i].Bundle, &images[i].SBOM} {
			if *file != "" {
				*file = filepath.Join(folder, *file)
			}
		}
	}
	return images
}

// Image gives an image to the node, where that was not done before, and returns it.
func (c *Cluster) Image(t testing.TB, name string) Image {
	t.Helper()
	i := slices.IndexFunc(c.images, func(i Image) bool { return i.Name == name })
	if i < 0 {
		t.Fatalf("image %s was not built: see IMAGES of `make test-cluster`", name)
	}
	image := c.images[i]
	c.Load(t, image.Archive, image.Reference)
	return image
}

// Load gives an image to the node from an archive that calls it by a reference.
func (c *Cluster) Load(t testing.TB, archive, reference string) {
	t.Helper()
	if got := strings.TrimSpace(c.script(t, "load.sh", archive)); got != reference {
		t.Fatalf("the node calls the image %q, want %q", got, reference)
	}
}

// Stop kills a part of the cluster (see part.sh), and starts it again when the test
// ends, if nobody did before.
func (c *Cluster) Stop(t testing.TB, part string) {
	t.Helper()
	c.script(t, "part.sh", "stop", part)
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(os.Getenv("CLUSTER_STATE"), "pids", part)); err != nil {
			c.Start(t, part)
		}
	})
}

// Start starts a part of the cluster that was stopped.
func (c *Cluster) Start(t testing.TB, part string) {
	t.Helper()
	c.script(t, "part.sh", "start", part)
}

// Node runs a command in the namespaces of the node and returns what it wrote.
func (c *Cluster) Node(t testing.TB, command ...string) string {
	t.Helper()
	return c.script(t, "enter.sh", append([]string{"--node"}, command...)...)
}

func (c *Cluster) script(t testing.TB, name string, args ...string) string {
	t.Helper()
	// Not the test's context: cleanups use it too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.scripts, name), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A program that the script leaves running holds its output open.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

// Eventually repeats a check until it returns nil, and ends the test when that does
// not happen within Patience.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if err := check(ctx); err == nil {
			return
		} else if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not after %s: %v", what, Patience, last)
		case <-tick.C:
		}
	}
}
