package identity_test

import (
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
)

var (
	td    = spiffeid.RequireTrustDomainFromString("cofferdam.test")
	other = spiffeid.RequireTrustDomainFromString("cofferdam.test.evil")
)

func TestAllowListMatchesWholeIDs(t *testing.T) {
	list := identity.AllowList{identity.Exactly(identity.Service(td, "controlplane")), identity.AnySandbox(td)}
	for id, want := range map[spiffeid.ID]bool{
		identity.Service(td, "controlplane"):                               true,
		identity.Sandbox(td, "i-1"):                                        true,
		identity.Sandbox(td, "6f1a.B_c-2"):                                 true,
		identity.Service(td, "controlplane2"):                              false,
		identity.Service(td, "control"):                                    false,
		identity.Service(td, "toolbroker"):                                 false,
		identity.Service(other, "controlplane"):                            false,
		identity.Sandbox(other, "i-1"):                                     false,
		spiffeid.RequireFromPath(td, "/sandbox"):                           false,
		spiffeid.RequireFromPath(td, "/sandbox-evil/i-1"):                  false,
		spiffeid.RequireFromPath(td, "/sandbox/i-1/svc"):                   false,
		spiffeid.RequireFromPath(td, "/svc/controlplane/x"):                false,
		spiffeid.RequireFromPath(td, "/x/sandbox/i-1"):                     false,
		spiffeid.RequireFromPath(td, "/Sandbox/i-1"):                       false,
		spiffeid.RequireFromPath(td, "/sandbox/"+strings.Repeat("a", 129)): false,
		td.ID(): false,
		{}:      false,
	} {
		if err := list.Check(id); (err == nil) != want {
			t.Errorf("Check(%q) = %v, want allowed %v", id, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := identity.Service(td, "toolbroker").String(); got != "spiffe://cofferdam.test/svc/toolbroker" {
		t.Errorf("Service: %q", got)
	}
	if got := identity.Sandbox(td, "i-1").String(); got != "spiffe://cofferdam.test/sandbox/i-1" {
		t.Errorf("Sandbox: %q", got)
	}
	long := strings.Repeat("a", 128)
	for _, uid := range []string{"a", "A.b_c-9", "..a", long} {
		if got, ok := identity.InstanceUID(identity.Sandbox(td, uid)); !ok || got != uid {
			t.Errorf("InstanceUID of %q: %q, %v", uid, got, ok)
		}
	}
	for _, uid := range []string{"", ".", "..", "a/b", "a b", "ä", "a\x00", "*", long + "a"} {
		if id := identity.Sandbox(td, uid); !id.IsZero() {
			t.Errorf("Sandbox(%q) = %q, want the zero ID", uid, id)
		}
		if id := identity.Service(td, uid); !id.IsZero() {
			t.Errorf("Service(%q) = %q, want the zero ID", uid, id)
		}
	}
	if id := identity.Sandbox(spiffeid.TrustDomain{}, "i-1"); !id.IsZero() {
		t.Errorf("Sandbox of no trust domain = %q", id)
	}
	if uid, ok := identity.InstanceUID(identity.Service(td, "x")); ok {
		t.Errorf("InstanceUID of a service: %q", uid)
	}
}

func TestParseAllowList(t *testing.T) {
	list, err := identity.ParseAllowList([]string{"spiffe://cofferdam.test/svc/controlplane", "spiffe://cofferdam.test/sandbox/*"})
	if err != nil {
		t.Fatal(err)
	}
	want := identity.AllowList{identity.Exactly(identity.Service(td, "controlplane")), identity.AnySandbox(td)}
	if len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("got %v, want %v", list, want)
	}
	for _, bad := range []string{
		"", "*", "nobody", "spiffe://cofferdam.test", "spiffe://cofferdam.test/", "spiffe://cofferdam.test/*",
		"spiffe://cofferdam.test/svc/*", "spiffe://cofferdam.test/x/sandbox/*", "spiffe:///sandbox/*", "/sandbox/*",
		"https://cofferdam.test/svc/x", "spiffe://cofferdam.test/sandbox/**", "SPIFFE://cofferdam.test/svc/x",
	} {
		if list, err := identity.ParseAllowList([]string{"spiffe://cofferdam.test/svc/x", bad}); err == nil || list != nil {
			t.Errorf("ParseAllowList(%q) = %v, %v", bad, list, err)
		}
	}
}

func FuzzParseMatcher(f *testing.F) {
	for _, s := range []string{"", "nobody", "spiffe://a/svc/b", "spiffe://a/sandbox/*", "spiffe://a/sandbox/b", "spiffe://a", "spiffe://a/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := identity.ParseMatcher(s)
		if err != nil {
			if m != (identity.Matcher{}) {
				t.Errorf("%q: an error and %v", s, m)
			}
			return
		}
		if m.String() != s {
			t.Errorf("%q reads back as %q", s, m)
		}
		if id, err := spiffeid.FromString(s); err == nil && !m.Match(id) {
			t.Errorf("%q does not match itself", s)
		}
		if m.Match(spiffeid.ID{}) || m.Match(td.ID()) {
			t.Errorf("%q matches what is no identity", s)
		}
	})
}
