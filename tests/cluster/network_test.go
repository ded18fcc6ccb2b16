//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"cofferdam.dev/tests/cluster/internal/kube"
)

// Who may speak to whom, by the names of the manifests' Deployments and SandboxTemplates: docs/ARCHITECTURE.md's arrows, and
// what is outside in development. What is not here is refused.
var (
	brokers = []string{"capability/tcp/8443", "filebroker/tcp/8443", "modelproxy/tcp/8443", "statefacade/tcp/8443", "toolbroker/tcp/8443", "resolver/tcp/5353", "resolver/udp/5353"}
	workers = []string{"native/tcp/8443", "acp/tcp/8443", "stdio/tcp/8443", "neighbour/tcp/8443"}
	dns     = []string{"cofferdam-dns/udp/53", "cofferdam-dns/tcp/53"}
	store   = append([]string{"ferretdb/tcp/27017"}, dns...)
	arrows  = map[string][]string{
		"native": brokers, "acp": brokers, "stdio": brokers, "neighbour": brokers,
		"capability":   store,
		"controlplane": slices.Concat([]string{"capability/tcp/8443", "filebroker/tcp/8443", "toolbroker/tcp/8443", "openfga/tcp/8080", "apiserver/tcp/6443", "apiserver's Service/tcp/443"}, store, workers),
		"filebroker":   slices.Concat([]string{"capability/tcp/8443"}, store),
		"modelproxy":   slices.Concat([]string{"capability/tcp/8443"}, store),
		"statefacade":  slices.Concat([]string{"capability/tcp/8443"}, store),
		"toolbroker":   slices.Concat([]string{"capability/tcp/8443", "controlplane/tcp/8443", "filebroker/tcp/8443", "openfga/tcp/8080", "mcp-files/tcp/8080"}, store),
		"resolver":     {"apiserver/tcp/6443", "apiserver's Service/tcp/443"},
		// Pods of others: what is outside is open to them, and nothing of ours.
		"stranger": outside, "cofferdam-dns": outside,
		// From where the operator and the tests call. The kubelet listens there for the API server.
		"operator": append([]string{"controlplane/tcp/8080", "controlplane/tcp/8081", "openfga/tcp/8080"}, outside...),
	}
	// others have no policies, so that they reach all of one another.
	others  = []string{"stranger", "cofferdam-dns", "operator"}
	outside = []string{
		"apiserver/tcp/6443", "apiserver's Service/tcp/443", "kubelet/tcp/10250",
		"metadata/tcp/80", "internet/tcp/443", "internet/udp/443", "internet's DNS/udp/53", "internet's DNS/tcp/53",
	}
)

// Addresses of what stands for the world. The machine has them for as long as the test runs; nothing of it leaves.
const (
	metadataAddress = "169.254.169.254"
	internetAddress = "203.0.113.7" // RFC 5737
	nodeAddress     = "10.200.0.2"
)

// clusterDNS is the component that stands for the cluster's DNS.
const clusterDNS = "../overlays/development/dns"

// village is a pod for each Deployment and SandboxTemplate of the manifests, with its labels in its namespace, whose
// networks the test enters. What the manifests say of ports listens; none of the programs does.
type village struct {
	*installation
	from map[string]kube.Network
	to   map[string]string // NAME/NETWORK/PORT: its address
}

// TestWhoSpeaksToWhom dials everything from everywhere: what the policies allow answers, all else is silent; with the
// policies taken away each of these answers, so that it was the policies that were seen.
func TestWhoSpeaksToWhom(t *testing.T) {
	in := &installation{Cluster: kube.Connect(t), prefix: "apart-" + rand.String(5)}
	in.system, in.sandboxes = in.prefix+"-system", in.prefix+"-sandboxes"
	v := &village{installation: in, from: map[string]kube.Network{}, to: map[string]string{}}
	objects := in.render(t, "development", "none", "hosted", clusterDNS)
	policies := kind(objects, "NetworkPolicy")
	for _, namespace := range kind(objects, "Namespace") {
		in.apply(t, namespace)
	}
	v.set(t, policies)
	v.settle(t, objects)
	v.world(t)

	v.see(t, "with the policies", arrows)
	v.set(t, nil)
	v.see(t, "without the policies", nil)
	v.set(t, policies)
	v.see(t, "with the policies again", arrows)

	embeddings := kind(in.render(t, "development", "none", "hosted", "embeddings", clusterDNS), "NetworkPolicy")
	more := maps.Clone(arrows)
	more["statefacade"] = append(slices.Clone(more["statefacade"]), "modelproxy/tcp/8443")
	v.set(t, embeddings)
	v.see(t, "with components/embeddings", more)
}

func kind(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// set makes these the NetworkPolicies of the installation, and no others.
func (v *village) set(t *testing.T, policies []*unstructured.Unstructured) {
	t.Helper()
	want := map[string]bool{}
	for _, p := range policies {
		want[p.GetNamespace()+"/"+p.GetName()] = true
		v.apply(t, p.DeepCopy())
	}
	there, err := v.Client.NetworkingV1().NetworkPolicies("").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=cofferdam"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range there.Items {
		if strings.HasPrefix(p.Namespace, v.prefix) && !want[p.Namespace+"/"+p.Name] {
			if err := v.Client.NetworkingV1().NetworkPolicies(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// settle makes the pods, and has listen in each what its manifest names.
func (v *village) settle(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	homes := map[string]corev1.PodTemplateSpec{}
	namespaces := map[string]string{}
	for _, object := range objects {
		path := []string{"spec", "template"}
		switch {
		case object.GetKind() == "SandboxTemplate":
			path = []string{"spec", "podTemplate"}
		case object.GetKind() != "Deployment":
			continue
		}
		raw, _, err := unstructured.NestedMap(object.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		var home corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &home); err != nil {
			t.Fatal(err)
		}
		homes[object.GetName()], namespaces[object.GetName()] = home, object.GetNamespace()
	}
	homes["neighbour"], namespaces["neighbour"] = homes["native"], namespaces["native"]
	ports := []corev1.ContainerPort{{ContainerPort: 8443}, {ContainerPort: 5353, Protocol: corev1.ProtocolUDP}}
	homes["stranger"] = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}}}
	namespaces["stranger"] = v.Namespace(t, nil)

	for name, home := range homes {
		v.pod(t, namespaces[name], name, home.Labels)
	}
	for name, home := range homes {
		pod := v.PodReady(t, namespaces[name], v.prefix+"-"+name)
		v.from[name] = v.Inside(t, pod)
		for _, container := range home.Spec.Containers {
			for _, port := range container.Ports {
				network := strings.ToLower(string(port.Protocol))
				if network == "" {
					network = "tcp"
				}
				number := strconv.Itoa(int(port.ContainerPort))
				address := net.JoinHostPort(pod.Status.PodIP, number)
				v.from[name].Listen(t, network, address)
				v.to[name+"/"+network+"/"+number] = address
			}
		}
	}
}

// pod makes one that does nothing: the image is that of every pod's infrastructure container.
func (v *village) pod(t *testing.T, namespace, name string, labels map[string]string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: v.prefix + "-" + name, Labels: labels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "pause", Image: "localhost/pause:local", ImagePullPolicy: corev1.PullNever,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	t.Cleanup(func() {
		if err := v.Client.CoreV1().Pods(namespace).Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// The namespace gets its default service account some time after it was made.
	kube.Eventually(t, "pod "+name, func(ctx context.Context) error {
		_, err := v.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// world is what is outside: the API server, the kubelet, and listeners for what this machine does not have.
func (v *village) world(t *testing.T) {
	t.Helper()
	own, err := v.Client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var machine kube.Network
	v.from["operator"] = machine
	v.to["apiserver/tcp/6443"] = kube.Host + ":6443"
	v.to["apiserver's Service/tcp/443"] = own.Spec.ClusterIP + ":443"
	v.to["kubelet/tcp/10250"] = nodeAddress + ":10250"
	for _, address := range []string{metadataAddress, internetAddress} {
		kube.Address(t, address)
	}
	for target, address := range map[string]string{
		"metadata/tcp/80": metadataAddress + ":80", "internet/tcp/443": internetAddress + ":443", "internet/udp/443": internetAddress + ":443",
		"internet's DNS/udp/53": internetAddress + ":53", "internet's DNS/tcp/53": internetAddress + ":53",
	} {
		machine.Listen(t, strings.Split(target, "/")[1], address)
		v.to[target] = address
	}
}

// see waits until what is allowed has answered and nothing else does; nil allows everything.
func (v *village) see(t *testing.T, when string, allowed map[string][]string) {
	t.Helper()
	begin := time.Now()
	pairs := v.pairs(allowed)
	// On a busy machine a question may be lost, so that what has answered is not asked again. What has to be silent is, in
	// the end at once.
	wrong := pairs
	kube.Eventually(t, when, func(ctx context.Context) error {
		var err error
		if wrong, err = dialAll(ctx, wrong); err != nil {
			return err
		}
		wrong, err = dialAll(ctx, slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return p.open }))
		return err
	})
	t.Logf("%s: %d pairs, in %s", when, len(pairs), time.Since(begin).Round(time.Millisecond))
}

// pair is one of who may be asking whom.
type pair struct {
	source, target string
	from           kube.Network
	address        string
	open           bool
}

func (v *village) pairs(allowed map[string][]string) (all []pair) {
	for source, network := range v.from {
		for target, address := range v.to {
			name, _, _ := strings.Cut(target, "/")
			// kube-proxy is on the node: outside of it no Service has an address.
			if name == source || source == "operator" && name == "apiserver's Service" {
				continue
			}
			open := allowed == nil || slices.Contains(allowed[source], target) || slices.Contains(others, source) && slices.Contains(others, name)
			all = append(all, pair{source, target, network, address, open})
		}
	}
	return all
}

// dialAll has all of these dialled at once, and gives those that are not as they should be.
func dialAll(ctx context.Context, pairs []pair) (wrong []pair, err error) {
	var group sync.WaitGroup
	var lock sync.Mutex
	var says []string
	for _, p := range pairs {
		group.Go(func() {
			_, rest, _ := strings.Cut(p.target, "/")
			protocol, _, _ := strings.Cut(rest, "/")
			if err := judge(answers(ctx, p.from, protocol, p.address), p.open); err != nil {
				lock.Lock()
				defer lock.Unlock()
				wrong, says = append(wrong, p), append(says, fmt.Sprintf("%s to %s: %v", p.source, p.target, err))
			}
		})
	}
	group.Wait()
	if len(wrong) > 0 {
		slices.Sort(says)
		err = errors.New(strings.Join(says, "; "))
	}
	return wrong, err
}

// judge compares what came of a dial with what should have. What a policy refuses is silent; an address at which nobody
// listens is not.
func judge(err error, open bool) error {
	var timeout net.Error
	switch {
	case open:
		return err
	case err == nil:
		return errors.New("it answers")
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil
	default:
		return fmt.Errorf("no silence: %w", err)
	}
}

// silence is how long nothing has to come back to count as refused: two tries of TCP's.
const silence = 2500 * time.Millisecond

// answers dials, and over udp waits for what comes back.
func answers(ctx context.Context, from kube.Network, network, address string) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	conn, err := from.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if network != "udp" {
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
