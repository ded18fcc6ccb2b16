package mongostore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue/cataloguetest"
	"cofferdam.dev/services/filebroker/internal/files/catalogue/mongostore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	server := mongodbstoretest.Server(t)
	cataloguetest.Run(t, func(t *testing.T) files.Catalogue {
		t.Helper()
		s, err := mongostore.Open(t.Context(), mongodbstoretest.OpenLossy(t, server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Collection("component_versions").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "file"}, {Key: "version", Value: int32(1 << 20)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := mongostore.Open(t.Context(), db); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("got %v", err)
	}
}

// Whoever completes an object may not come to say so in it. It is visible all the
// same, and counts.
func TestCompletionAloneDecides(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	s, err := mongostore.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	now := time.Unix(1_700_000_000, 0)
	quota := files.Quota{Bytes: 100, Objects: 4, Now: now}
	object := func(id string) files.Object {
		return files.Object{ID: id, BindingID: "hs_1", Epoch: 1, RunID: "run", Info: files.Info{Content: blob.Content{Size: 60}}}
	}
	if err := s.StageObject(t.Context(), object("first"), now.Add(time.Minute), quota); err != nil {
		t.Fatal(err)
	}
	_, err = db.Collection("file_completions").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "slot"}, {Key: "object", Value: "first"}, {Key: "dropped", Value: false},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Object(t.Context(), "first"); err != nil {
		t.Errorf("it is not visible: %v", err)
	}
	if dropped, err := s.DropObject(t.Context(), "first"); err != nil || dropped {
		t.Errorf("it was dropped: %v, %v", dropped, err)
	}
	quota.Now = now.Add(time.Hour)
	if err := s.StageObject(t.Context(), object("second"), now.Add(2*time.Hour), quota); !errors.Is(err, files.ErrQuota) {
		t.Errorf("it does not count: %v", err)
	}
}

// The last reservation counts also where its maker did not come to say so.
func TestReservationCountsBeforeItSaysSo(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	s, err := mongostore.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	now := time.Unix(1_700_000_000, 0)
	quota := files.Quota{Bytes: 100, Objects: 4, Now: now}
	for n, want := range []error{nil, files.ErrQuota} {
		o := files.Object{ID: fmt.Sprint(n), BindingID: "hs_1", Epoch: 1, RunID: "run", Info: files.Info{Content: blob.Content{Size: 60}}}
		if err := s.StageObject(t.Context(), o, now.Add(time.Minute), quota); !errors.Is(err, want) {
			t.Errorf("object %d: got %v, want %v", n, err, want)
		}
		if _, err := db.Collection("file_objects").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "reserved", Value: false}}}}); err != nil {
			t.Fatal(err)
		}
	}
}
