package nodeidentity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestPodsGetTheirIdentities(t *testing.T) {
	n := newNode(t)
	c := n.client(t)
	service := n.request(t, uidOne, "cofferdam-system", "toolbroker")
	sandbox := n.request(t, uidTwo, "cofferdam-sandboxes", "worker")
	for req, want := range map[*csi.NodePublishVolumeRequest]string{
		service: "spiffe://cofferdam.test/svc/toolbroker", sandbox: "spiffe://cofferdam.test/sandbox/" + uidTwo,
	} {
		publish(t, c, req)
		publish(t, c, req) // a kubelet repeats what it had no answer to
		if got := idOf(t, source(t, req)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		// What is in a volume is nobody's to change, root of the pod included.
		if err := os.WriteFile(filepath.Join(req.GetTargetPath(), "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("a file in the volume: %v", err)
		}
		if err := os.Remove(socketIn(req)); !errors.Is(err, unix.EROFS) {
			t.Errorf("the socket was removed: %v", err)
		}
	}
	unpublish(t, c, service)
	unpublish(t, c, service)
	if _, err := os.Lstat(service.GetTargetPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
	if got := kept(t, n); got != 1 {
		t.Errorf("%d volumes are kept, want that of the sandbox alone", got)
	}
	if got := idOf(t, source(t, sandbox)); !strings.HasSuffix(got, uidTwo) {
		t.Errorf("the other pod is %s", got)
	}
}

// Two pods of one service, as in every rolling update, have a socket each and end apart.
func TestTwoPodsOfOneService(t *testing.T) {
	n := newNode(t)
	c := n.client(t)
	one, two := n.request(t, uidOne, "cofferdam-system", "toolbroker"), n.request(t, uidTwo, "cofferdam-system", "toolbroker")
	publish(t, c, one)
	publish(t, c, two)
	unpublish(t, c, one)
	if got := idOf(t, source(t, two)); got != "spiffe://cofferdam.test/svc/toolbroker" {
		t.Errorf("%s", got)
	}
}

func kept(t *testing.T, n *node) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.cfg.StateDir, "v"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// The plugin is replaced under running pods: they find their socket in the same place, and what they held stays good.
// A pod whose mount did not outlive it, since the node was started again, gets a new one when the kubelet asks.
func TestARestartOfThePlugin(t *testing.T) {
	n := newNode(t)
	c := n.client(t)
	alive, gone := n.request(t, uidOne, "cofferdam-system", "toolbroker"), n.request(t, uidTwo, "cofferdam-sandboxes", "worker")
	publish(t, c, alive)
	publish(t, c, gone)
	pod := source(t, alive)
	before, err := pod.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socketIn(alive)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a socket that nobody serves: %v", err)
	}
	if err := unix.Unmount(gone.GetTargetPath(), 0); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	fresh := source(t, alive)
	if got := idOf(t, fresh); got != before.ID.String() {
		t.Errorf("%s, want %s", got, before.ID)
	}
	bundle, err := fresh.GetX509BundleForTrustDomain(td)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := x509svid.Verify(before.Certificates, bundle); err != nil {
		t.Errorf("what was issued before: %v", err)
	}
	if got := kept(t, n); got != 1 {
		t.Errorf("%d volumes are kept, want the one that is mounted", got)
	}
	c = n.client(t)
	publish(t, c, gone)
	if got := idOf(t, source(t, gone)); !strings.HasSuffix(got, uidTwo) {
		t.Errorf("%s", got)
	}
	unpublish(t, c, alive)
	unpublish(t, c, gone)
	if got := kept(t, n); got != 0 {
		t.Errorf("%d volumes are kept, want none", got)
	}
}

// A record is believed only as far as the rules of today go.
func TestARestartWithOtherRules(t *testing.T) {
	n := newNode(t)
	req := n.request(t, uidOne, "cofferdam-system", "toolbroker")
	publish(t, n.client(t), req)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	rules, err := ParseRules([]byte(`{"rules":[{"namespace":"other","service_accounts":["toolbroker"],"identity":"service"}]}`), td)
	if err != nil {
		t.Fatal(err)
	}
	n.cfg.Rules = rules
	n.start(t)
	if _, err := os.Lstat(socketIn(req)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
	unpublish(t, n.client(t), req)
	if _, err := os.Lstat(req.GetTargetPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	n := newNode(t)
	c := n.client(t)
	for _, refused := range []struct {
		name   string
		change func(*csi.NodePublishVolumeRequest)
		want   codes.Code
	}{
		{"another namespace", set(keySpace, "default"), codes.PermissionDenied},
		{"another account", set(keyUser, "default"), codes.PermissionDenied},
		{"an account of the sandboxes", set(keyUser, "worker"), codes.PermissionDenied},
		{"no account", drop(keyUser), codes.PermissionDenied},
		{"no pod info", func(r *csi.NodePublishVolumeRequest) { r.VolumeContext = nil }, codes.InvalidArgument},
		{"no inline volume", drop(keyInline), codes.InvalidArgument},
		{"a persistent volume", set(keyInline, "false"), codes.InvalidArgument},
		{"attributes of the pod's own", set("identity", "/svc/controlplane"), codes.InvalidArgument},
		{"a service account token", set(podPrefix+"serviceAccount.tokens", "{}"), codes.InvalidArgument},
		{"another pod's uid", set(keyUID, uidTwo), codes.InvalidArgument},
		{"a uid that leads elsewhere", set(keyUID, "../"+uidOne), codes.InvalidArgument},
		{"writable", func(r *csi.NodePublishVolumeRequest) { r.Readonly = false }, codes.InvalidArgument},
		{"a block device", func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, codes.InvalidArgument},
		{"no capability", func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, codes.InvalidArgument},
		{"secrets", func(r *csi.NodePublishVolumeRequest) { r.Secrets = map[string]string{"k": "v"} }, codes.InvalidArgument},
		{"no id", func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, codes.InvalidArgument},
		{"a long id", func(r *csi.NodePublishVolumeRequest) { r.VolumeId = strings.Repeat("v", 129) }, codes.InvalidArgument},
		{"a target elsewhere", func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/etc" }, codes.InvalidArgument},
		{"a target that leads elsewhere", func(r *csi.NodePublishVolumeRequest) {
			r.TargetPath = strings.TrimSuffix(r.GetTargetPath(), "/mount") + "/../../mount"
		}, codes.InvalidArgument},
		{"a target of another driver", func(r *csi.NodePublishVolumeRequest) {
			r.TargetPath = strings.Replace(r.GetTargetPath(), "kubernetes.io~csi", "kubernetes.io~secret", 1)
		}, codes.InvalidArgument},
	} {
		req := n.request(t, uidOne, "cofferdam-system", "toolbroker")
		target := req.GetTargetPath()
		refused.change(req)
		if _, err := c.NodePublishVolume(bounded(t), req); status.Code(err) != refused.want {
			t.Errorf("%s: %v, want %v", refused.name, err, refused.want)
		}
		if got := kept(t, n); got != 0 {
			t.Errorf("%s: %d volumes are kept", refused.name, got)
		}
		if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the target was made: %v", refused.name, err)
		}
	}
	for name, req := range map[string]*csi.NodeUnpublishVolumeRequest{
		"elsewhere": {VolumeId: "v", TargetPath: "/proc"},
		"no id":     {TargetPath: n.request(t, uidOne, "cofferdam-system", "toolbroker").GetTargetPath()},
	} {
		if _, err := c.NodeUnpublishVolume(bounded(t), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("unpublish %s: %v", name, err)
		}
	}
}

func set(key, value string) func(*csi.NodePublishVolumeRequest) {
	return func(r *csi.NodePublishVolumeRequest) { r.VolumeContext[key] = value }
}

func drop(key string) func(*csi.NodePublishVolumeRequest) {
	return func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, key) }
}

// A volume that is there is not given to a second pod, and its id not to a second target.
func TestAVolumeIsOnePods(t *testing.T) {
	n := newNode(t)
	c := n.client(t)
	one, two := n.request(t, uidOne, "cofferdam-system", "toolbroker"), n.request(t, uidTwo, "cofferdam-sandboxes", "worker")
	publish(t, c, one)
	two.VolumeId = one.GetVolumeId()
	if _, err := c.NodePublishVolume(bounded(t), two); status.Code(err) != codes.AlreadyExists {
		t.Errorf("%v", err)
	}
	if _, err := c.NodeUnpublishVolume(bounded(t), &csi.NodeUnpublishVolumeRequest{VolumeId: one.GetVolumeId(), TargetPath: two.GetTargetPath()}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("%v", err)
	}
	if got := idOf(t, source(t, one)); got != "spiffe://cofferdam.test/svc/toolbroker" {
		t.Errorf("%s", got)
	}
}

func TestANodeHasSoManyVolumes(t *testing.T) {
	n := newNode(t)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n.cfg.Max = 1
	n.start(t)
	c := n.client(t)
	one, two := n.request(t, uidOne, "cofferdam-system", "toolbroker"), n.request(t, uidTwo, "cofferdam-sandboxes", "worker")
	publish(t, c, one)
	if _, err := c.NodePublishVolume(bounded(t), two); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	unpublish(t, c, one)
	publish(t, c, two)
}

func TestTheKubeletsWords(t *testing.T) {
	n := newNode(t)
	ids := csi.NewIdentityClient(dialUnix(t, filepath.Join(n.cfg.KubeletDir, "plugins/csi.spiffe.io/csi.sock")))
	info, err := ids.GetPluginInfo(bounded(t), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "csi.spiffe.io" {
		t.Errorf("%v, %v", info, err)
	}
	if probe, err := ids.Probe(bounded(t), &csi.ProbeRequest{}); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("%v, %v", probe, err)
	}
	if caps, err := ids.GetPluginCapabilities(bounded(t), &csi.GetPluginCapabilitiesRequest{}); err != nil || len(caps.GetCapabilities()) > 0 {
		t.Errorf("%v, %v", caps, err)
	}
	c := n.client(t)
	if node, err := c.NodeGetInfo(bounded(t), &csi.NodeGetInfoRequest{}); err != nil || node.GetNodeId() != "node1" {
		t.Errorf("%v, %v", node, err)
	}
	if caps, err := c.NodeGetCapabilities(bounded(t), &csi.NodeGetCapabilitiesRequest{}); err != nil || len(caps.GetCapabilities()) > 0 {
		t.Errorf("%v, %v", caps, err)
	}
	r := registration.NewRegistrationClient(dialUnix(t, n.registrationSocket()))
	got, err := r.GetInfo(bounded(t), &registration.InfoRequest{})
	if err != nil || got.GetType() != "CSIPlugin" || got.GetName() != "csi.spiffe.io" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := r.NotifyRegistrationStatus(bounded(t), &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Error(err)
	}
	if _, err := r.NotifyRegistrationStatus(bounded(t), &registration.RegistrationStatus{Error: "no"}); err != nil {
		t.Error(err)
	}
	// Whoever supervises it has to see that it is of no use.
	if err := n.stop(); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("it ended with %v", err)
	}
	n.stop = func() error { return nil }
}

func TestAStateFolderIsRootsAlone(t *testing.T) {
	n := newNode(t)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]func(*Config){
		"readable": func(c *Config) {
			if err := os.Chmod(c.StateDir, 0o750); err != nil {
				t.Fatal(err)
			}
		},
		"too deep":    func(c *Config) { c.StateDir = "/" + strings.Repeat("d", 60) },
		"relative":    func(c *Config) { c.StateDir = "state" },
		"no node":     func(c *Config) { c.NodeID = "" },
		"no kubelet":  func(c *Config) { c.KubeletDir = "" },
		"less than 0": func(c *Config) { c.Max = -1 },
	} {
		bad := n.cfg
		cfg(&bad)
		if err := Run(t.Context(), bad); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	n.stop = func() error { return nil }
}
