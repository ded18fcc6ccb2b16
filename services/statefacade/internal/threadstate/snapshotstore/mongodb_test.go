package snapshotstore_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/statefacade/internal/threadstate"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore/snapshotstoretest"
)

func TestMongoDB(t *testing.T) {
	server := mongodbstoretest.Server(t)
	snapshotstoretest.Run(t, func(t *testing.T) threadstate.Snapshots {
		t.Helper()
		s, err := snapshotstore.OpenMongoDB(t.Context(), mongodbstoretest.OpenLossy(t, server))
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

func TestMongoDBOfANewerProgramIsRefused(t *testing.T) {
	db := mongodbstoretest.Open(t, mongodbstoretest.Server(t))
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Collection("component_versions").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "thread"}, {Key: "version", Value: int32(1 << 20)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshotstore.OpenMongoDB(t.Context(), db); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("got %v", err)
	}
}
