package nodeidentity

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 30 * time.Second

	uidOne = "0d4b2f6c-5a3e-4c7e-9b1e-0c9f3f4a1b01"
	uidTwo = "0d4b2f6c-5a3e-4c7e-9b1e-0c9f3f4a1b02"
)

var td = spiffeid.RequireTrustDomainFromString("cofferdam.test")

const rulesText = `{"rules": [
	{"namespace": "cofferdam-system", "service_accounts": ["toolbroker", "controlplane"], "identity": "service"},
	{"namespace": "cofferdam-sandboxes", "service_accounts": ["worker"], "identity": "sandbox"}]}`

// node is a kubelet's folder, and the plugin beside it.
type node struct {
	cfg  Config
	stop func() error
}

// newNode starts a plugin. It mounts, so it takes root, which CI has.
func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a CSI driver mounts, which takes root")
	}
	dir, err := os.MkdirTemp("", "ni") //nolint:usetesting // the path of t.TempDir is too long for sockets below it
	if err != nil {
		t.Fatal(err)
	}
	rules, err := ParseRules([]byte(rulesText), td)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{cfg: Config{
		TrustDomain: td, Rules: rules, NodeID: "node1", Logger: slog.New(slog.DiscardHandler),
		StateDir: filepath.Join(dir, "state"), KubeletDir: filepath.Join(dir, "kubelet"),
	}}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		mounts, err := filepath.Glob(filepath.Join(n.cfg.KubeletDir, "pods/*/volumes/kubernetes.io~csi/*/mount"))
		if err != nil {
			t.Error(err)
		}
		for _, m := range mounts {
			if err := unbind(m); err != nil {
				t.Error(err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	n.start(t)
	return n
}

// start runs the plugin until stop.
func (n *node) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = Run(ctx, n.cfg)
	}()
	n.stop = func() error {
		cancel()
		<-ended
		return result
	}
	await(t, "the registration socket", func() bool {
		select {
		case <-ended:
			t.Fatalf("it ended: %v", result)
		default:
		}
		_, err := os.Stat(n.registrationSocket())
		return err == nil
	})
}

func (n *node) registrationSocket() string {
	return filepath.Join(n.cfg.KubeletDir, "plugins_registry", "csi.spiffe.io-reg.sock")
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for ctx := bounded(t); !done(); {
		select {
		case <-ctx.Done():
			t.Fatalf("gave up waiting for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func dialUnix(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// client is the kubelet's, found as the kubelet finds it.
func (n *node) client(t *testing.T) csi.NodeClient {
	t.Helper()
	info, err := registration.NewRegistrationClient(dialUnix(t, n.registrationSocket())).GetInfo(bounded(t), &registration.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return csi.NewNodeClient(dialUnix(t, info.GetEndpoint()))
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// request is what a kubelet asks for a pod, whose folder it has made.
func (n *node) request(t *testing.T, uid, namespace, account string) *csi.NodePublishVolumeRequest {
	t.Helper()
	volume := filepath.Join(n.cfg.KubeletDir, "pods", uid, "volumes/kubernetes.io~csi/spiffe")
	if err := os.MkdirAll(volume, 0o750); err != nil {
		t.Fatal(err)
	}
	return &csi.NodePublishVolumeRequest{
		VolumeId: "csi-" + uid, TargetPath: filepath.Join(volume, "mount"), Readonly: true,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/pod.uid": uid, "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.namespace": namespace,
			"csi.storage.k8s.io/serviceAccount.name": account, "csi.storage.k8s.io/ephemeral": "true",
		},
	}
}

func publish(t *testing.T, c csi.NodeClient, req *csi.NodePublishVolumeRequest) {
	t.Helper()
	if _, err := c.NodePublishVolume(bounded(t), req); err != nil {
		t.Fatal(err)
	}
}

func unpublish(t *testing.T, c csi.NodeClient, req *csi.NodePublishVolumeRequest) {
	t.Helper()
	if _, err := c.NodeUnpublishVolume(bounded(t), &csi.NodeUnpublishVolumeRequest{VolumeId: req.GetVolumeId(), TargetPath: req.GetTargetPath()}); err != nil {
		t.Fatal(err)
	}
}

// source is a pod's, at the socket that it finds in its volume.
func source(t *testing.T, req *csi.NodePublishVolumeRequest) *workloadapi.X509Source {
	t.Helper()
	// A pod has a short path for it; the kubelet's is too long for a socket.
	short, err := os.MkdirTemp("", "ni") //nolint:usetesting // t.TempDir is as long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(short); err != nil {
			t.Error(err)
		}
	})
	if err := os.Symlink(req.GetTargetPath(), filepath.Join(short, "v")); err != nil {
		t.Fatal(err)
	}
	address := "unix://" + filepath.Join(short, "v", "spire-agent.sock")
	s, err := workloadapi.NewX509Source(bounded(t), workloadapi.WithClientOptions(workloadapi.WithAddr(address)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func socketIn(req *csi.NodePublishVolumeRequest) string {
	return filepath.Join(req.GetTargetPath(), "spire-agent.sock")
}

func idOf(t *testing.T, s *workloadapi.X509Source) string {
	t.Helper()
	svid, err := s.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	return svid.ID.String()
}
