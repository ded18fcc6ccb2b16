package workloadapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// kept is a configuration whose authorities outlive their server.
func kept(t *testing.T, now *clock) func(*Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authorities.json")
	return func(c *Config) { c.Authorities, c.Now = file, now.Now }
}

// A restart at any moment of a rotation changes nothing: what was issued before is trusted after it, and the other way
// round.
func TestARestartAtAnyMomentIsNotSeen(t *testing.T) {
	now := newClock()
	change := kept(t, now)
	before := newServer(t, change)
	register(t, before, sandbox)
	for range 60 {
		at := now.add(50 * time.Minute)
		rotate(t, before, at)
		old := snapshot(t, before)
		signer := before.chain.signer.kid
		before.Close()
		after := newServer(t, change)
		register(t, after, sandbox)
		fresh := snapshot(t, after)
		for name, pair := range map[string]struct{ svid, bundle state }{"old SVID": {old, fresh}, "new SVID": {fresh, old}} {
			if _, _, err := x509svid.Verify(pair.svid.svid, pair.bundle.bundle, x509svid.WithTime(at)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if after.chain.signer.kid != signer || len(after.chain.all) != len(before.chain.all) {
			t.Fatal("another authority signs after the restart, or another number is trusted")
		}
		before = after
	}
}

func TestAuthoritiesAreNotForOthers(t *testing.T) {
	now := newClock()
	change := kept(t, now)
	s := newServer(t, change)
	file := s.cfg.Authorities
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	s.Close()
	refused := func(what string) {
		t.Helper()
		cfg := Config{TrustDomain: td, Dir: t.TempDir()}
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: a server was made", what)
		}
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	refused("readable by a group")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{TrustDomain: spiffeid.RequireTrustDomainFromString("other.test"), Dir: t.TempDir(), Authorities: file}); err == nil {
		t.Error("they were taken for another trust domain")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw[:len(raw)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	refused("half of it")
}

// A rotation that cannot be kept does not happen: nobody is told an authority that the next start would not know.
func TestAnAuthorityThatIsNotKeptIsNotUsed(t *testing.T) {
	now := newClock()
	s := newServer(t, kept(t, now))
	register(t, s, sandbox)
	folder := filepath.Dir(s.cfg.Authorities)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	if err := s.rotate(now.add(13 * time.Hour)); err == nil {
		t.Error("the rotation succeeded")
	}
	if n := len(s.chain.all); n != 1 {
		t.Errorf("%d authorities are trusted", n)
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	rotate(t, s, now.add(time.Minute))
	if n := len(s.chain.all); n != 2 {
		t.Errorf("%d authorities are trusted", n)
	}
}

// Two pods of one service have one identity and a socket each.
func TestSocketsOfOneIdentityAreApart(t *testing.T) {
	s := newServer(t, nil)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	for _, path := range []string{one, two} {
		if err := s.RegisterAt(broker, path); err != nil {
			t.Fatal(err)
		}
		if svid, err := dial(t, path).FetchX509SVID(bounded(t)); err != nil || svid.ID != broker {
			t.Errorf("%v, %v", svid, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != openMode {
			t.Errorf("%v, %v", info, err)
		}
	}
	if err := s.RegisterAt(sandbox, one); err == nil {
		t.Error("a socket got a second identity")
	}
	s.DeregisterAt(one)
	if _, err := os.Lstat(one); err == nil {
		t.Error("the socket is still there")
	}
	if _, err := dial(t, two).FetchX509SVID(bounded(t)); err != nil {
		t.Errorf("the other: %v", err)
	}
	if err := s.RegisterAt(broker, filepath.Join(dir, strings.Repeat("long", 30))); err == nil {
		t.Error("a path that no socket can have was taken")
	}
}

func FuzzStoredAuthorities(f *testing.F) {
	c := chain{td: td, ttl: 24 * time.Hour}
	if _, err := c.advance(time.Now()); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "a")
	if err := c.save(path); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"trust_domain":"cofferdam.test","authorities":[],"signer":0}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decodeChain(raw, chain{td: td, ttl: time.Hour})
		if err != nil {
			return
		}
		if _, err := got.advance(time.Now()); err != nil || got.signer == nil {
			t.Errorf("advance: %v", err)
		}
		if _, err := got.signer.issue(sandbox, time.Now(), time.Hour); err != nil {
			t.Errorf("issue: %v", err)
		}
	})
}
