package blobstore_test

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/blob/blobtest"
	"cofferdam.dev/pkg/blob/s3test"
)

// bucket is the one of a server, emptied of what the test before has left.
func bucket(t *testing.T, a blobstore.Address) blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(t.Context(), a)
	if err == nil {
		err = s.Check(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, folder := range []string{"objects", "objects2", "parts"} {
		if err := s.Each(t.Context(), folder, func(e blob.Entry) error { return s.Delete(t.Context(), e.Key) }); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestS3(t *testing.T) {
	a := s3test.Server(t)
	blobtest.Run(t, func(t *testing.T) blob.Store { t.Helper(); return bucket(t, a) })
	t.Run("of several parts of an upload", func(t *testing.T) {
		s := bucket(t, a)
		content := make([]byte, 17<<20)
		_, _ = rand.Read(content)
		w, err := s.Create(t.Context(), "objects/digest/large")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		r, err := s.Open(t.Context(), "objects/digest/large", 5<<20)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || blob.Of(got) != blob.Of(content[5<<20:]) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
	})
	t.Run("wrong credentials", func(t *testing.T) {
		wrong := blobstore.Address{URL: a.URL, CredentialsFile: credentials(t, "[default]\naws_access_key_id = nobody\naws_secret_access_key = hush\n")}
		s, err := blobstore.Open(t.Context(), wrong)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Check(t.Context()); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("got %v", err)
		}
		_, err = s.Open(t.Context(), "objects/digest/obj_1", 0)
		if err == nil || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no such bucket", func(t *testing.T) {
		s, err := blobstore.Open(t.Context(), blobstore.Address{URL: strings.Replace(a.URL, "files", "another", 1), CredentialsFile: a.CredentialsFile})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Check(t.Context()); err == nil {
			t.Error("it is there")
		}
	})
	t.Run("credentials that change", func(t *testing.T) {
		right, err := os.ReadFile(a.CredentialsFile)
		if err != nil {
			t.Fatal(err)
		}
		file := credentials(t, string(right))
		bucket(t, blobstore.Address{URL: a.URL, CredentialsFile: file})
	})
}

// credentials is a file of them.
func credentials(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that is not right is found at the start, and nothing of it is repeated.
func TestCredentialsThatAreNot(t *testing.T) {
	open := credentials(t, "[default]\naws_access_key_id = a\naws_secret_access_key = hush\n")
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"chmod 600":        open,
		"no such file":     filepath.Join(t.TempDir(), "none"),
		"has no profile":   credentials(t, "[other]\naws_access_key_id = a\naws_secret_access_key = hush\n"),
		"with aws_access_": credentials(t, "[default]\naws_secret_access_key = hush\n"),
		"profile default":  credentials(t, "hush"),
	} {
		_, err := blobstore.Open(t.Context(), blobstore.Address{URL: "s3://bucket", CredentialsFile: file})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
