package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// manifest is what is deployed; its Corefile is what is tested.
const manifest = "../../deploy/kubernetes/base/resolver.yaml"

// asResolver makes the test binary the program itself.
const asResolver = "COFFERDAM_TEST_AS_RESOLVER"

// patience bounds what never happens.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asResolver) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// corefile reads the Corefile of the manifest.
func corefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "ConfigMap" && object.Data["Corefile"] != "" {
			return object.Data["Corefile"]
		}
	}
	t.Fatalf("no Corefile in %s", manifest)
	return ""
}

// resolver is the running program.
type resolver struct{ address string }

// start runs the program with the deployed Corefile, of which it changes only what
// it listens on and where the API is.
func start(t *testing.T, api *cluster) resolver {
	t.Helper()
	// An address of its own, so that the ports can be those of the Corefile.
	number := make([]byte, 3)
	_, _ = rand.Read(number) // never fails
	address := net.IPv4(127, 1+number[0]/2, number[1], 1+number[2]/2).String()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address+":8001")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(api)
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := replace(t, corefile(t), map[string]string{
		"cluster.local:5353 {\n":       "cluster.local:5353 {\n bind " + address + "\n",
		"health :":                     "health " + address + ":",
		"ready :":                      "ready " + address + ":",
		"prometheus :":                 "prometheus " + address + ":",
		"kubernetes cluster.local {\n": "kubernetes cluster.local {\n endpoint http://" + address + ":8001\n",
	})
	path := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, os.Args[0], "-conf", path)
	cmd.Env = []string{asResolver + "=1"}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it was killed, or says why in its output
	}()
	t.Cleanup(func() {
		cancel()
		<-exited
		if t.Failed() {
			t.Log(output.String())
		}
	})
	r := resolver{address}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	deadline := time.Now().Add(patience)
	for !r.ready(t, client) {
		select {
		case <-exited:
			t.Fatal("it ended")
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("never ready")
		}
	}
	return r
}

// ready is whether the program says so and answers.
func (r resolver) ready(t *testing.T, client *http.Client) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+":9092/ready", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false
	}
	// The plugin can be ready before the port is open.
	for _, network := range []string{"udp", "tcp"} {
		probe := new(dns.Msg).SetQuestion("ready.invalid.", dns.TypeA)
		if _, _, err := (&dns.Client{Net: network, Timeout: patience}).ExchangeContext(t.Context(), probe, r.address+":5353"); err != nil {
			return false
		}
	}
	return true
}

// replace changes a text; each of the changes must find its place once.
func replace(t *testing.T, text string, changes map[string]string) string {
	t.Helper()
	for old, replacement := range changes {
		if strings.Count(text, old) != 1 {
			t.Fatalf("the Corefile has %q %d times:\n%s", old, strings.Count(text, old), text)
		}
		text = strings.Replace(text, old, replacement, 1)
	}
	return text
}

// ask sends one question and returns the answer.
func (r resolver) ask(t *testing.T, network, name string, kind, class uint16) *dns.Msg {
	t.Helper()
	question := &dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: dns.Id(), RecursionDesired: true},
		Question: []dns.Question{{Name: dns.Fqdn(name), Qtype: kind, Qclass: class}},
	}
	client := &dns.Client{Net: network, Timeout: patience}
	answer, _, err := client.ExchangeContext(t.Context(), question, r.address+":5353")
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[kind], err)
	}
	return answer
}

// cluster is an API server with some namespaces and Services, which lists and
// watches them by label as a real one does, and writes down what it was asked for.
type cluster struct {
	services   []corev1.Service
	namespaces []corev1.Namespace

	mu    sync.Mutex
	asked []string
}

func newCluster() *cluster {
	service := func(namespace, name, ip string, labels map[string]string) corev1.Service {
		return corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, ResourceVersion: "1"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
				Ports: []corev1.ServicePort{{Name: "https", Port: 8443, Protocol: corev1.ProtocolTCP}},
			},
		}
	}
	resolvable := map[string]string{"cofferdam.dev/resolvable": "true"}
	external := service("cofferdam-system", "outside", "", resolvable)
	external.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "attacker.example"}
	c := &cluster{services: []corev1.Service{
		service("cofferdam-system", "toolbroker", "10.96.0.7", resolvable),
		service("cofferdam-system", "controlplane", "10.96.0.8", nil),
		service("cofferdam-system", "openfga", "10.96.0.9", map[string]string{"cofferdam.dev/resolvable": "false"}),
		service("default", "kubernetes", "10.96.0.1", nil),
		service("somebody", "database", "10.96.0.11", resolvable),
		external,
	}}
	for _, name := range []string{"cofferdam-system", "cofferdam-sandboxes", "default", "somebody"} {
		c.namespaces = append(c.namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}})
	}
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
	}
	c.mu.Lock()
	c.asked = append(c.asked, verb+" "+r.URL.Path)
	c.mu.Unlock()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if verb == "watch" {
		if query.Get("sendInitialEvents") != "" {
			// As a server that has no streaming lists: the client lists.
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
			})
			return
		}
		w.WriteHeader(http.StatusOK)
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		<-r.Context().Done()
		return
	}
	var answer any
	switch r.URL.Path {
	case "/api/v1/services":
		list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, s := range c.services {
			if selector.Matches(labels.Set(s.Labels)) {
				list.Items = append(list.Items, s)
			}
		}
		answer = list
	case "/api/v1/namespaces":
		answer = corev1.NamespaceList{TypeMeta: metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: c.namespaces}
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the resolver notices
}

// TestOnlyAllowedNames asks the deployed resolver what a sandbox could ask. The names
// of Services with the label are answered. Everything else ends here, with NXDOMAIN in
// the cluster's zone and REFUSED elsewhere, and carries nothing further.
func TestOnlyAllowedNames(t *testing.T) {
	api := newCluster()
	r := start(t, api)
	const allowed = "toolbroker.cofferdam-system.svc.cluster.local"
	// What a sandbox would send out, in the form of a name.
	const stolen = "c2VjcmV0LXRva2VuLW9mLXNvbWVib2R5.0001.session"

	for _, test := range []struct {
		name  string
		kind  uint16
		rcode int
	}{
		{allowed, dns.TypeAAAA, dns.RcodeSuccess}, // the name is there, and has none
		{allowed, dns.TypeTXT, dns.RcodeSuccess},

		{"controlplane.cofferdam-system.svc.cluster.local", dns.TypeA, dns.RcodeNameError},
		{"openfga.cofferdam-system.svc.cluster.local", dns.TypeA, dns.RcodeNameError},
		{"database.somebody.svc.cluster.local", dns.TypeA, dns.RcodeNameError}, // labelled, by somebody else
		{"kubernetes.default.svc.cluster.local", dns.TypeA, dns.RcodeNameError},
		{"10-244-0-5.cofferdam-system.pod.cluster.local", dns.TypeA, dns.RcodeNameError},
		{"10-244-0-5.cofferdam-sandboxes.pod.cluster.local", dns.TypeA, dns.RcodeNameError},
		{"*.cofferdam-system.svc.cluster.local", dns.TypeA, dns.RcodeNameError},
		{stolen + "." + allowed, dns.TypeA, dns.RcodeNameError},
		{stolen + ".cluster.local", dns.TypeTXT, dns.RcodeNameError},
		{stolen + ".attacker.example.cluster.local", dns.TypeA, dns.RcodeNameError},

		{"attacker.example", dns.TypeA, dns.RcodeRefused},
		{stolen + ".attacker.example", dns.TypeA, dns.RcodeRefused},
		{stolen + ".attacker.example", dns.TypeAAAA, dns.RcodeRefused},
		{stolen + ".attacker.example", dns.TypeTXT, dns.RcodeRefused},
		{stolen + ".attacker.example", dns.TypeNULL, dns.RcodeRefused},
		{stolen + ".attacker.example", dns.TypeMX, dns.RcodeRefused},
		{stolen + ".attacker.example", dns.TypeHTTPS, dns.RcodeRefused},
		{"attacker.example", dns.TypeANY, dns.RcodeRefused},
		{"notcluster.local", dns.TypeA, dns.RcodeRefused},
		{"local", dns.TypeSOA, dns.RcodeRefused},
		{".", dns.TypeNS, dns.RcodeRefused},
		{"metadata.google.internal", dns.TypeA, dns.RcodeRefused},
		{"7.0.96.10.in-addr.arpa", dns.TypePTR, dns.RcodeRefused},
		{"8.0.96.10.in-addr.arpa", dns.TypePTR, dns.RcodeRefused},
		{"localhost", dns.TypeA, dns.RcodeRefused},
	} {
		for _, network := range []string{"udp", "tcp"} {
			answer := r.ask(t, network, test.name, test.kind, dns.ClassINET)
			if answer.Rcode != test.rcode {
				t.Errorf("%s %s by %s: %s, want %s", dns.TypeToString[test.kind], test.name, network, dns.RcodeToString[answer.Rcode], dns.RcodeToString[test.rcode])
			}
			if len(answer.Answer) != 0 || answer.RecursionAvailable {
				t.Errorf("%s %s by %s: answered %v, recursion %t", dns.TypeToString[test.kind], test.name, network, answer.Answer, answer.RecursionAvailable)
			}
		}
	}
	for _, name := range []string{allowed, strings.ToUpper(allowed[:7]) + allowed[7:]} {
		answer := r.ask(t, "udp", name, dns.TypeA, dns.ClassINET)
		if len(answer.Answer) != 1 {
			t.Fatalf("%s: %v", name, answer)
		}
		if a, ok := answer.Answer[0].(*dns.A); !ok || a.A.String() != "10.96.0.7" {
			t.Errorf("%s is %v", name, answer.Answer[0])
		}
	}
	if answer := r.ask(t, "udp", "version.bind", dns.TypeTXT, dns.ClassCHAOS); answer.Rcode != dns.RcodeRefused {
		t.Errorf("version.bind: %v", answer)
	}

	// The rights in deploy/kubernetes/base/rbac.yaml are enough, and no more is asked for.
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, asked := range api.asked {
		if _, resource, _ := strings.Cut(asked, " "); resource != "/api/v1/services" && resource != "/api/v1/namespaces" {
			t.Errorf("asked the API to %s", asked)
		}
	}
}

// TestAliasLeadsNowhere: a Service that stands for a name outside gives that name
// away, at most, and never asks for it.
func TestAliasLeadsNowhere(t *testing.T) {
	r := start(t, newCluster())
	answer := r.ask(t, "udp", "outside.cofferdam-system.svc.cluster.local", dns.TypeA, dns.ClassINET)
	for _, record := range answer.Answer {
		if _, ok := record.(*dns.CNAME); !ok {
			t.Errorf("an address of a name outside: %v", record)
		}
	}
}

// TestNoTransfer asks for the whole zone.
func TestNoTransfer(t *testing.T) {
	r := start(t, newCluster())
	for _, kind := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
		for _, zone := range []string{"cluster.local", "cofferdam-system.svc.cluster.local", "attacker.example", "."} {
			answer := r.ask(t, "tcp", zone, kind, dns.ClassINET)
			if answer.Rcode != dns.RcodeRefused || len(answer.Answer) != 0 {
				t.Errorf("%s of %s: %v", dns.TypeToString[kind], zone, answer)
			}
		}
	}
}

// TestNothingIsLinkedThatForwards: no Corefile can make this program pass a question
// on, because what does is not in it.
func TestNothingIsLinkedThatForwards(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	const plugins = "github.com/coredns/coredns/plugin/"
	if !slices.Contains(linked, plugins+"kubernetes") {
		t.Fatalf("the list is wrong: %q", linked)
	}
	for _, name := range []string{"forward", "grpc", "pkg/proxy", "secondary", "rewrite", "template", "file", "auto", "hosts", "etcd", "route53", "azure", "clouddns", "dnstap", "trace"} {
		if slices.Contains(linked, plugins+name) {
			t.Errorf("plugin %s is linked", name)
		}
	}
	for _, directive := range []string{"forward . 192.0.2.53", "grpc . 192.0.2.53", "hosts", "template ANY ANY", "log", "dnstap /tmp/sock"} {
		path := filepath.Join(t.TempDir(), "Corefile")
		if err := os.WriteFile(path, []byte(". {\n "+directive+"\n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, os.Args[0], "-conf", path)
		cmd.Env = []string{asResolver + "=1"}
		output, err := cmd.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(output), "Unknown directive") {
			t.Errorf("%s: %v\n%s", directive, err, output)
		}
	}
}
