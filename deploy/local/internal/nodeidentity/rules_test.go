package nodeidentity

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestRules(t *testing.T) {
	rules, err := ParseRules([]byte(rulesText), td)
	if err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[Pod]string{
		{uidOne, "cofferdam-system", "controlplane"}: "spiffe://cofferdam.test/svc/controlplane",
		{uidOne, "cofferdam-sandboxes", "worker"}:    "spiffe://cofferdam.test/sandbox/" + uidOne,
	} {
		if got, err := rules.Identity(pod); err != nil || got.String() != want {
			t.Errorf("%v: %v, %v", pod, got, err)
		}
	}
	for _, pod := range []Pod{
		{uidOne, "cofferdam-system", "worker"},
		{uidOne, "cofferdam-sandboxes", "controlplane"},
		{uidOne, "cofferdam-system", ""},
		{uidOne, "", "controlplane"},
		{uidOne, "cofferdam-system", "controlplane2"},
		{uidOne, "cofferdam-systems", "controlplane"},
		{},
	} {
		if got, err := rules.Identity(pod); err == nil {
			t.Errorf("%v: %v", pod, got)
		}
	}
	if _, err := rules.Identity(Pod{uidOne, "default", "default"}); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("%v", err)
	}
	for name, text := range map[string]string{
		"empty":                 `{"rules":[]}`,
		"nothing":               ``,
		"unknown field":         `{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"service","x":1}]}`,
		"another kind":          `{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"node"}]}`,
		"no account":            `{"rules":[{"namespace":"a","service_accounts":[],"identity":"service"}]}`,
		"a pattern":             `{"rules":[{"namespace":"a","service_accounts":["*"],"identity":"service"}]}`,
		"a path":                `{"rules":[{"namespace":"a","service_accounts":["b/c"],"identity":"service"}]}`,
		"no namespace":          `{"rules":[{"namespace":"","service_accounts":["b"],"identity":"service"}]}`,
		"twice":                 `{"rules":[{"namespace":"a","service_accounts":["b","b"],"identity":"sandbox"}]}`,
		"two kinds of one":      `{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"sandbox"},{"namespace":"a","service_accounts":["b"],"identity":"service"}]}`,
		"a service in two":      `{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"service"},{"namespace":"c","service_accounts":["b"],"identity":"service"}]}`,
		"larger than a file is": `{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"service"}]}` + strings.Repeat(" ", maxRulesFile),
	} {
		if _, err := ParseRules([]byte(text), td); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := ParseRules([]byte(rulesText), spiffeid.TrustDomain{}); err == nil {
		t.Error("no trust domain: taken")
	}
	if _, err := LoadRules(t.TempDir()+"/none", td); err == nil {
		t.Error("no file: taken")
	}
}

func FuzzRules(f *testing.F) {
	f.Add([]byte(rulesText), uidOne, "cofferdam-system", "controlplane")
	f.Add([]byte(`{"rules":[{"namespace":"a","service_accounts":["b"],"identity":"sandbox"}]}`), "../x", "a", "b")
	f.Fuzz(func(t *testing.T, raw []byte, uid, namespace, account string) {
		rules, err := ParseRules(raw, td)
		if err != nil {
			return
		}
		id, err := rules.Identity(Pod{uid, namespace, account})
		if err != nil {
			return
		}
		// Whatever was let in, it is one segment of one of the two kinds, and the pod's own.
		kind, name, _ := strings.Cut(strings.TrimPrefix(id.Path(), "/"), "/")
		if id.TrustDomain() != td || kind == "svc" && name != account || kind == "sandbox" && name != uid || kind != "svc" && kind != "sandbox" {
			t.Errorf("%q for %q %q %q", id, uid, namespace, account)
		}
	})
}

func FuzzRecords(f *testing.F) {
	raw, err := json.Marshal(Volume{ID: "csi-1", Target: "/k/pods/" + uidOne + "/volumes/kubernetes.io~csi/n/mount", Pod: Pod{uidOne, "a", "b"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"volume_id":"../..","target":"/k/pods/../../etc","pod":{"uid":"","namespace":"","service_account":""}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		vol, err := decodeRecord(raw)
		v := &volumes{dir: "/state/v", kubelet: "/k"}
		if err != nil || v.check(vol) != nil {
			return
		}
		if !strings.HasPrefix(vol.Target, "/k/pods/"+vol.Pod.UID+"/volumes/kubernetes.io~csi/") || strings.Contains(vol.Target, "/../") {
			t.Errorf("target %q", vol.Target)
		}
		if socket := v.socket(vol); !strings.HasPrefix(socket, "/state/v/") || len(socket) > 60 {
			t.Errorf("socket %q", socket)
		}
	})
}
