package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/tests/stack"
)

// The same on MongoDB, where nothing is left in a file of the stack, and with several
// replicas.
func TestANewWorkerKnowsWhatTheOldOneReadOnMongoDB(t *testing.T) {
	command := stack.Need(t)
	uri := mongodbstoretest.URI(t, mongodbstoretest.Server(t))
	db := mongodbstoretest.Reopen(t, uri)
	t.Cleanup(func() {
		if err := db.Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("drop: %v", err)
		}
		_ = db.Close()
	})
	s := newShelf(t)
	skill, handbook := s.write(t, "skills/greeting/SKILL.md", ""), s.write(t, "handbook.txt", "")
	w := openReplicas(t, command, "--store", uri, "--agents", s.agents())
	w.remembers(t)
	w.nextTurns(t)
	w.elsewhere(t)
	c := w.talk()
	w.at(c, 1).reads(t, "skills/greeting/SKILL.md", skill)
	w.at(c, 2).reads(t, "files/handbook.txt", handbook)
	for _, collection := range []string{"bindings", "chunks", "runs", "ledger", "thread_snapshots", "file_contents"} {
		if n, err := db.Collection(collection).CountDocuments(t.Context(), bson.D{}); err != nil || n == 0 {
			t.Errorf("%s has %d documents (%v)", collection, n, err)
		}
	}
	for _, file := range []string{"records.db", "state.db", "files.db"} {
		if _, err := os.Stat(filepath.Join(w.Data, "state", file)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", file, err)
		}
	}
}
