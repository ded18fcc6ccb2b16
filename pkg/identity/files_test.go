package identity_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

const poll = time.Second

// disk is a directory with the three files of a source.
type disk struct {
	identity.Config

	dir   string
	whole *identitytest.Source // what writeAll wrote last
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	return &disk{dir: dir, Config: identity.Config{
		SVIDFile: in("svid.pem"), KeyFile: in("key.pem"), BundleFile: in("bundle.pem"), Poll: poll,
	}}
}

func (d *disk) write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (d *disk) writeAll(t *testing.T, src *identitytest.Source) {
	t.Helper()
	d.whole = src
	cert, key, bundle := src.PEM(t)
	d.write(t, d.SVIDFile, cert)
	d.write(t, d.KeyFile, key)
	d.write(t, d.BundleFile, bundle)
}

func (d *disk) open(t *testing.T) identity.Source {
	t.Helper()
	src, err := identity.Open(t.Context(), d.Config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// polled lets the time of one poll pass. Time is that of synctest: nothing waits for it.
func polled() {
	time.Sleep(poll) //nolint:forbidigo // in a synctest bubble
	synctest.Wait()
}

// same reports whether src shows the SVID and the bundle of want.
func same(t *testing.T, src identity.Source, want *identitytest.Source) bool {
	t.Helper()
	return sameSVID(t, src, want) && sameBundle(t, src, want)
}

func sameSVID(t *testing.T, src identity.Source, want *identitytest.Source) bool {
	t.Helper()
	got, errGot := src.SVID()
	svid, errWant := want.SVID()
	if err := errors.Join(errGot, errWant); err != nil {
		t.Fatal(err)
	}
	return got.Certificates[0].Equal(svid.Certificates[0])
}

func sameBundle(t *testing.T, src identity.Source, want *identitytest.Source) bool {
	t.Helper()
	got, errGot := src.Bundle()
	bundle, errWant := want.Bundle()
	if err := errors.Join(errGot, errWant); err != nil {
		t.Fatal(err)
	}
	return got.Equal(bundle)
}

func TestFilesFollowRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain := identitytest.New(t)
		want := domain.Source(t, domain.Sandbox("i-1"))
		d := newDisk(t)
		d.writeAll(t, want)
		src := d.open(t)
		if src.ID() != want.ID() || !same(t, src, want) {
			t.Fatalf("opened as %q", src.ID())
		}
		before, err := src.SVID()
		if err != nil {
			t.Fatal(err)
		}
		polled()
		if after, err := src.SVID(); err != nil || after != before {
			t.Errorf("nothing was rotated, and the SVID is another one: %v", err)
		}
		for _, rotate := range []func(testing.TB){domain.Rotate, domain.RotateCA, domain.ForgetOldCAs} {
			rotate(t)
			d.writeAll(t, want)
			polled()
			if !same(t, src, want) {
				t.Error("a rotation was missed")
			}
		}
	})
}

// The files are replaced one after the other, and a poll falls in between.
func TestFilesAreTakenOnlyWhenTheyFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain := identitytest.New(t)
		want := domain.Source(t, domain.Sandbox("i-1"))
		d := newDisk(t)
		d.writeAll(t, want)
		src := d.open(t)
		old := want.Frozen()
		domain.RotateCA(t)
		domain.ForgetOldCAs(t)
		cert, key, bundle := want.PEM(t)

		d.write(t, d.SVIDFile, cert)
		d.write(t, d.BundleFile, nil)
		polled()
		if !same(t, src, old) {
			t.Error("a certificate was taken without its key, or an empty bundle")
		}
		// The old authority is not to be trusted any longer, whatever state the SVID is in.
		d.write(t, d.BundleFile, bundle)
		polled()
		if !sameSVID(t, src, old) || !sameBundle(t, src, want) {
			t.Error("the new bundle was not taken beside the old SVID")
		}
		d.write(t, d.BundleFile, bundle[:len(bundle)/2])
		d.write(t, d.KeyFile, key)
		polled()
		if !same(t, src, want) {
			t.Error("the new SVID was not taken beside the last bundle")
		}
		if err := os.Remove(d.KeyFile); err != nil {
			t.Fatal(err)
		}
		polled()
		if !same(t, src, want) {
			t.Error("a missing file took the identity away")
		}
		domain.Rotate(t)
		d.writeAll(t, want)
		polled()
		if !same(t, src, want) {
			t.Error("the source did not recover")
		}
	})
}

func TestFilesCannotChangeTheIdentity(t *testing.T) {
	foreign := identitytest.NewDomain(t, "foreign.test")
	for name, id := range map[string]spiffeid.ID{
		"another sandbox":      identity.Sandbox(td, "i-2"),
		"another trust domain": foreign.Sandbox("i-1"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				domain := identitytest.New(t)
				want := domain.Source(t, domain.Sandbox("i-1"))
				d := newDisk(t)
				d.writeAll(t, want)
				src := d.open(t)
				d.writeAll(t, identitytest.NewDomain(t, id.TrustDomain().Name()).Source(t, id))
				polled()
				if src.ID() != want.ID() || !same(t, src, want) {
					t.Errorf("the source became %q", src.ID())
				}
				// The process that was told who it must be does not start as somebody else either.
				d.ID = want.ID()
				ctx, cancel := context.WithTimeout(t.Context(), 3*poll)
				defer cancel()
				if src, err := identity.Open(ctx, d.Config, nil); err == nil {
					t.Errorf("opened as %q", src.ID())
				} else if !strings.Contains(err.Error(), id.String()) {
					t.Errorf("the error does not say whose SVID it was: %v", err)
				}
			})
		})
	}
}

func TestExpiredSVIDIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain := identitytest.New(t)
		want := domain.Source(t, domain.Sandbox("i-1"))
		d := newDisk(t)
		d.writeAll(t, want)
		src := d.open(t)
		time.Sleep(2 * time.Hour) //nolint:forbidigo // in a synctest bubble
		if svid, err := src.SVID(); !errors.Is(err, identity.ErrExpired) {
			t.Errorf("got %v, %v, want ErrExpired", svid, err)
		}
		if config := identity.ClientTLS(src, domain.Service("x")); config != nil {
			if _, err := config.GetClientCertificate(nil); !errors.Is(err, identity.ErrExpired) {
				t.Errorf("a client would show it: %v", err)
			}
		}
		domain.Rotate(t)
		d.writeAll(t, want)
		polled()
		if !same(t, src, want) {
			t.Error("the source did not recover")
		}
	})
}

func TestOpenWaitsForFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain := identitytest.New(t)
		want := domain.Source(t, domain.Sandbox("i-1"))
		d := newDisk(t)
		go func() {
			time.Sleep(poll / 2) //nolint:forbidigo // in a synctest bubble
			d.writeAll(t, want)
		}()
		begun := time.Now()
		src := d.open(t)
		if waited := time.Since(begun); !same(t, src, want) || waited != poll {
			t.Errorf("opened after %s, want %s", waited, poll)
		}
	})
}

func TestOpenIsBounded(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *disk, *identitytest.Domain){
		"no files": func(_ *testing.T, d *disk, _ *identitytest.Domain) { d.SVIDFile = filepath.Join(d.dir, "missing") },
		"not PEM":  func(t *testing.T, d *disk, _ *identitytest.Domain) { d.write(t, d.SVIDFile, []byte("x")) },
		"a file too large": func(t *testing.T, d *disk, _ *identitytest.Domain) {
			_, _, bundle := d.whole.PEM(t)
			d.write(t, d.BundleFile, append(bundle, make([]byte, 1<<20)...))
		},
		"an empty bundle": func(t *testing.T, d *disk, _ *identitytest.Domain) { d.write(t, d.BundleFile, nil) },
		"a directory":     func(_ *testing.T, d *disk, _ *identitytest.Domain) { d.BundleFile = d.dir },
		"an expired SVID": func(t *testing.T, d *disk, domain *identitytest.Domain) {
			d.writeAll(t, domain.Expired(t, domain.Sandbox("i-1")))
		},
		"another's key": func(t *testing.T, d *disk, domain *identitytest.Domain) {
			_, key, _ := domain.Source(t, domain.Sandbox("i-1")).PEM(t)
			d.write(t, d.KeyFile, key)
		},
		"an authority's ID": func(t *testing.T, d *disk, domain *identitytest.Domain) {
			d.writeAll(t, domain.Source(t, domain.TrustDomain().ID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				domain := identitytest.New(t)
				d := newDisk(t)
				d.writeAll(t, domain.Source(t, domain.Sandbox("i-1")))
				spoil(t, d, domain)
				begun := time.Now()
				src, err := identity.Open(t.Context(), d.Config, nil)
				if err == nil {
					_ = src.Close()
					t.Fatal("opened")
				}
				if waited := time.Since(begun); waited != 30*time.Second || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("gave up after %s: %v", waited, err)
				}
				if strings.Contains(err.Error(), "PRIVATE KEY") {
					t.Errorf("the error shows a key: %v", err)
				}
			})
		})
	}
}

func TestCloseIsRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain := identitytest.New(t)
		d := newDisk(t)
		d.writeAll(t, domain.Source(t, domain.Sandbox("i-1")))
		src := d.open(t)
		for range 2 {
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := src.SVID(); !errors.Is(err, identity.ErrClosed) {
			t.Errorf("SVID: %v", err)
		}
		if _, err := src.Bundle(); !errors.Is(err, identity.ErrClosed) {
			t.Errorf("Bundle: %v", err)
		}
	})
}
