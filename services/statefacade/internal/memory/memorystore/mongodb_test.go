package memorystore_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore/memorystoretest"
)

func TestMongoDB(t *testing.T) {
	server := mongodbstoretest.Server(t)
	memorystoretest.Run(t, func(t *testing.T) memory.Store {
		t.Helper()
		s, err := memorystore.OpenMongoDB(t.Context(), mongodbstoretest.OpenLossy(t, server))
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
	if _, err := db.Collection("component_versions").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "memory"}, {Key: "version", Value: int32(1 << 20)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := memorystore.OpenMongoDB(t.Context(), db); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("got %v", err)
	}
}
