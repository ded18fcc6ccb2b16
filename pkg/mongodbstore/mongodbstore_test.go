package mongodbstore_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte("s3cret-canary\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		c    mongodbstore.Config
		want string
	}{
		"no MongoDB":          {mongodbstore.Config{URI: "https://host"}, "mongodb://"},
		"no URI":              {mongodbstore.Config{URI: "mongodb://a b:s3cret-canary@%zz"}, "not a URI"},
		"password in the URI": {mongodbstore.Config{URI: "mongodb://u:" + "s3cret-canary@host"}, "leave the password out"},
		"password of nobody":  {mongodbstore.Config{URI: "mongodb://host", PasswordFile: secret}, "needs a user"},
		"password for all":    {mongodbstore.Config{URI: "mongodb://u@host", PasswordFile: secret}, "chmod 600"},
		"no password file":    {mongodbstore.Config{URI: "mongodb://u@host", PasswordFile: secret + "x"}, "no such file"},
		"a folder":            {mongodbstore.Config{URI: "mongodb://u@host", PasswordFile: dir}, "regular file"},
	} {
		_, err := mongodbstore.Open(t.Context(), tt.c)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for uri, want := range map[string]bool{"mongodb://h/d": true, "mongodb+srv://h": true, "/var/lib/x.db": false, "": false} {
		if mongodbstore.Is(uri) != want {
			t.Errorf("%s is MongoDB: %v", uri, !want)
		}
	}
}

// A server that is not there is said to be so, within the time that was given.
func TestNobodyThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := mongodbstore.Open(ctx, mongodbstore.Config{URI: "mongodb://127.0.0.1:1/"}); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%v", err)
	}
}

func TestNewerVersionIsRefused(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	t.Cleanup(func() { _ = db.Close() })
	index := []mongodbstore.Index{{Collection: "things", Keys: bson.D{{Key: "a", Value: 1}}}}
	for _, version := range []int32{1, 2, 2} {
		if err := db.Migrate(t.Context(), "thing", version, index); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
	}
	if err := db.Migrate(t.Context(), "thing", 1, nil); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("an older program: %v", err)
	}
	if err := db.Migrate(t.Context(), "other", 1, nil); err != nil {
		t.Errorf("another component: %v", err)
	}
}

// Spans name commands and hold nothing of what is in them.
func TestSpansHaveNoContents(t *testing.T) {
	server := mongodbstoretest.Server(t)
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	uri := mongodbstoretest.URI(t, server)
	db, err := mongodbstore.Open(t.Context(), mongodbstore.Config{URI: uri, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Drop(context.WithoutCancel(t.Context()))
		_ = db.Close()
	})
	things := db.Collection("things")
	for range 2 { // the second one fails
		_, _ = things.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "canary-1"}, {Key: "a", Value: "canary-2"}})
	}
	inserts := 0
	for _, s := range spans.Ended() {
		if s.Name() == "mongodb.insert" {
			inserts++
		}
		if text := strings.Join([]string{s.Name(), s.Status().Description, attributes(s)}, " "); strings.Contains(text, "canary") {
			t.Errorf("%s", text)
		}
	}
	if inserts != 2 {
		t.Errorf("%d spans of inserts", inserts)
	}
}

func attributes(s sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	for _, kv := range s.Attributes() {
		b.WriteString(string(kv.Key) + "=" + kv.Value.String() + " ")
	}
	return b.String()
}
