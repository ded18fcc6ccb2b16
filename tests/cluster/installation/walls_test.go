//go:build cluster

package installation

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

// brokers are the services that a sandbox speaks to.
var brokers = []string{"capability", "filebroker", "modelproxy", "statefacade", "toolbroker"}

// Addresses of what stands for the world, and of the node.
const (
	metadataAddress = "169.254.169.254"
	internetAddress = "203.0.113.7" // RFC 5737
	kubelet         = "10.200.0.2:10250"
)

// walls is the pod of a worker that has a turn behind it, and what is around it.
type walls struct {
	*installation.Installation

	seat   installation.Seat
	inside kube.Network
	closed []target // to it
	doors  []target // to the worker, from where nobody may reach it
}

// target is an address that is dialled from a network.
type target struct {
	name             string
	from             kube.Network
	network, address string
}

// From the pod of a worker nothing but the brokers and the resolver can be reached, and only the control plane reaches the
// worker. Everything else is there: it answers as soon as the policies are taken away, and is silent again once they are
// back. Then the conversation goes on.
func TestWhatASandboxReaches(t *testing.T) {
	i := installation.Shared(t, config)
	talk, other := i.Talk(t, installation.Agent), i.Talk(t, installation.Agent)
	w := &walls{Installation: i, seat: i.Seat(t, talk.Tell(t, ">>say hello").BindingID)}
	neighbour := i.Seat(t, other.Tell(t, ">>say hello").BindingID)
	w.inside = i.Cluster.Inside(t, w.seat.Pod)
	w.forbid(t, neighbour.Pod)

	w.brokersAnswer(t)
	w.names(t)
	w.see(t, "with the policies", false)
	restore := w.open(t)
	w.see(t, "without the policies", true)
	w.resolves(t, w.service(t, "kube-system", "kube-dns")+":53", "ferretdb.cofferdam-dev.svc.cluster.local")
	restore()
	w.see(t, "with the policies again", false)
	w.brokersAnswer(t)
	w.names(t)
	if at := i.Seat(t, talk.Tell(t, installation.Read("notes.txt")).BindingID); at.Pod.UID != w.seat.Pod.UID {
		t.Errorf("the conversation went on in pod %s of generation %d", at.Pod.Name, at.Generation)
	}
}

// forbid lists what must not be reached, each over what it speaks.
func (w *walls) forbid(t *testing.T, neighbour *corev1.Pod) {
	t.Helper()
	to := func(name, network, address string) {
		w.closed = append(w.closed, target{name, w.inside, network, address})
	}
	for name, at := range map[string]struct {
		namespace, service string
		ports              []int
	}{
		"the database":   {installation.Development, "ferretdb", []int{27017}},
		"OpenFGA":        {installation.Development, "openfga", []int{8080}},
		"the MCP server": {installation.Development, "mcp-files", []int{8080}},
	} {
		for _, port := range at.ports {
			to(name, "tcp", fmt.Sprintf("%s:%d", w.Address(t, at.namespace, at.service), port))
			to(name+"'s Service", "tcp", fmt.Sprintf("%s:%d", w.service(t, at.namespace, at.service), port))
		}
	}
	for _, port := range []int{8080, 8081, 8443, 9090} {
		to("the control plane", "tcp", fmt.Sprintf("%s:%d", w.Address(t, installation.System, "controlplane"), port))
	}
	for _, name := range brokers {
		to("the metrics of "+name, "tcp", w.Address(t, installation.System, name)+":9090")
	}
	for _, port := range []int{8443, 9090} {
		to("another sandbox", "tcp", fmt.Sprintf("%s:%d", neighbour.Status.PodIP, port))
	}
	to("the API server", "tcp", kube.Host+":6443")
	to("the API server's Service", "tcp", w.service(t, "default", "kubernetes")+":443")
	to("the kubelet", "tcp", kubelet)
	to("the cluster's DNS", "tcp", w.service(t, "kube-system", "kube-dns")+":53")
	var machine kube.Network
	for _, address := range []string{metadataAddress, internetAddress} {
		kube.Address(t, address)
	}
	for _, world := range []target{
		{"the metadata", machine, "tcp", metadataAddress + ":80"},
		{"the internet", machine, "tcp", internetAddress + ":443"},
		{"the internet", machine, "udp", internetAddress + ":443"},
		{"a DNS server of the internet", machine, "udp", internetAddress + ":53"},
	} {
		machine.Listen(t, world.network, world.address)
		to(world.name, world.network, world.address)
	}

	// The other way round: to the worker, from anybody but the control plane.
	rpc := w.seat.Pod.Status.PodIP + ":8443"
	w.doors = append(w.doors, target{"the operator's machine", machine, "tcp", rpc}, target{"another sandbox", w.Cluster.Inside(t, neighbour), "tcp", rpc})
	for _, name := range append([]string{"resolver"}, brokers...) {
		w.doors = append(w.doors, target{name, w.Cluster.Inside(t, w.Service(t, installation.System, name)), "tcp", rpc})
	}
	controlplane := w.Cluster.Inside(t, w.Service(t, installation.System, "controlplane"))
	w.doors = append(w.doors, target{"the control plane, at the worker's metrics", controlplane, "tcp", w.seat.Pod.Status.PodIP + ":9090"})
	kube.Eventually(t, "the control plane's way to the worker", func(ctx context.Context) error {
		return target{"", controlplane, "tcp", rpc}.dial(ctx)
	})
}

// service is the address of a Service.
func (w *walls) service(t *testing.T, namespace, name string) string {
	t.Helper()
	s, err := w.Cluster.Client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Spec.ClusterIP
}

// see waits until all that is forbidden answers, or none of it does.
func (w *walls) see(t *testing.T, when string, open bool) {
	t.Helper()
	all := slices.Concat(w.closed, w.doors)
	answered := make([]bool, len(all)) // which need not be asked again: on a busy machine some dial of many may always be late
	kube.Eventually(t, when, func(ctx context.Context) error {
		wrong := make([]error, len(all))
		var group sync.WaitGroup
		for n, at := range all {
			if open && answered[n] {
				continue
			}
			group.Go(func() {
				err := at.dial(ctx)
				answered[n] = err == nil
				var failed net.Error
				switch {
				case open && err != nil:
					wrong[n] = fmt.Errorf("%s, %s, does not answer: %w", at.name, at.address, err)
				case !open && err == nil:
					wrong[n] = fmt.Errorf("%s, %s, answers", at.name, at.address)
				case !open && (!errors.As(err, &failed) || !failed.Timeout()):
					wrong[n] = fmt.Errorf("%s, %s, is not silent: %w", at.name, at.address, err)
				}
			})
		}
		group.Wait()
		return errors.Join(wrong...)
	})
	t.Logf("%s: %d addresses", when, len(all))
}

// dial says whether somebody answers. Who does not in this time is silent.
func (at target) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
	defer cancel()
	conn, err := at.from.DialContext(ctx, at.network, at.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at.network != "udp" {
		return nil
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("anybody?")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 64))
	return err
}

// open takes every NetworkPolicy of the installation away, until what it returns is called, or the test ends.
func (w *walls) open(t *testing.T) (restore func()) {
	t.Helper()
	var all []networkingv1.NetworkPolicy
	for _, namespace := range []string{installation.System, installation.Sandboxes, installation.Development} {
		there, err := w.Cluster.Client.NetworkingV1().NetworkPolicies(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, there.Items...)
	}
	once := sync.OnceFunc(func() {
		for n := range all {
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: all[n].Name, Namespace: all[n].Namespace, Labels: all[n].Labels}, Spec: all[n].Spec}
			if _, err := w.Cluster.Client.NetworkingV1().NetworkPolicies(p.Namespace).Create(context.WithoutCancel(t.Context()), p, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(once)
	for n := range all {
		if err := w.Cluster.Client.NetworkingV1().NetworkPolicies(all[n].Namespace).Delete(t.Context(), all[n].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return once
}

// brokersAnswer asks the sandbox's resolver for each broker, which then shows its identity.
func (w *walls) brokersAnswer(t *testing.T) {
	t.Helper()
	for _, name := range brokers {
		address := w.resolves(t, w.resolver(), name+"."+installation.System+".svc.cluster.local")
		who, err := w.anonymous(t, net.JoinHostPort(address, "8443"), nil)
		if want := "spiffe://cofferdam.local/svc/" + name; who != want {
			t.Errorf("at %s is %q, want %s: %v", name, who, want, err)
		}
	}
}

// anonymous asks with the certificate that is given, or none, and gives the identity of who was asked, with what came of it: an
// answer, of whatever status, is no error.
func (w *walls) anonymous(t *testing.T, address string, certificate *tls.Certificate) (who string, err error) {
	t.Helper()
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // that it is the broker is seen by its identity
		VerifyConnection: func(state tls.ConnectionState) error {
			if leaf := state.PeerCertificates[0]; len(leaf.URIs) == 1 {
				who = leaf.URIs[0].String()
			}
			return nil
		},
	}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: w.inside.DialContext, TLSClientConfig: config, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/harness.memory.v1.MemoryService/Get", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return who, err
	}
	return who, answer.Body.Close()
}

func (w *walls) resolver() string { return w.seat.Pod.Spec.DNSConfig.Nameservers[0] + ":53" }

// lookup asks a server for a name from inside.
func (w *walls) lookup(ctx context.Context, server, name string) ([]string, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return w.inside.DialContext(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	addresses, err := r.LookupNetIP(ctx, "ip4", name+".")
	found := make([]string, 0, len(addresses))
	for _, a := range addresses {
		found = append(found, a.String())
	}
	return found, err
}

// resolves waits until a server has an address for a name.
func (w *walls) resolves(t *testing.T, server, name string) (address string) {
	t.Helper()
	kube.Eventually(t, name, func(ctx context.Context) error {
		found, err := w.lookup(ctx, server, name)
		if err == nil {
			address = found[0]
		}
		return err
	})
	return address
}

// names asks for names that a sandbox has no business with. The resolver is there and says no, so that nothing goes on to
// whoever would know; what is in a name leaves with no question.
func (w *walls) names(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"ferretdb.cofferdam-dev.svc.cluster.local", "openfga.cofferdam-dev.svc.cluster.local", "kubernetes.default.svc.cluster.local",
		"resolver.cofferdam-system.svc.cluster.local", "controlplane.cofferdam-system.svc.cluster.local", "native.cofferdam-sandboxes.svc.cluster.local", "nobody.cofferdam-system.svc.cluster.local",
		"example.org", "what-the-agent-knows.attacker.example", "metadata.google.internal", strings.ReplaceAll(w.seat.Pod.Status.PodIP, ".", "-") + ".cofferdam-sandboxes.pod.cluster.local",
	} {
		kube.Eventually(t, name, func(ctx context.Context) error { // a question may be lost on a busy machine
			found, err := w.lookup(ctx, w.resolver(), name)
			var said *net.DNSError
			switch {
			case err == nil:
				t.Fatalf("%s is %v", name, found)
			case !errors.As(err, &said) || said.IsTimeout:
				return err
			}
			return nil
		})
	}
}
