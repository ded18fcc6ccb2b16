package linearizability_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/statefacade/internal/linearizability"
)

// serveArgument makes this test binary a client process.
const serveArgument = "serve-linearizability-clients"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArgument {
		if err := linearizability.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// Whatever 64 clients in four processes do at once, with lost answers and killed
// processes, one order of their writes explains what they were told; and each kind
// of write that is made without its fence is found.
func TestWritesAreLinearizable(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := mongodbstoretest.Server(t)
	folder := t.TempDir()
	n := 0
	for backend, store := range map[string]func() (string, error){
		linearizability.SQLite: func() (string, error) {
			n++
			return filepath.Join(folder, fmt.Sprintf("%d.db", n)), nil
		},
		linearizability.MongoDB: func() (string, error) { return mongodbstoretest.NewDatabase(server) },
	} {
		t.Run(backend, func(t *testing.T) {
			r, err := linearizability.Run(t.Context(), linearizability.Config{
				Backend: backend, Store: store, Ops: ops(backend), Command: []string{self, serveArgument}, Seed: 1, People: t.Output(),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", r)
			if err := r.Verdict(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ops: the whole number in CI, and on a server that is not FerretDB.
func ops(backend string) int {
	if os.Getenv("CI") == "true" || backend == linearizability.SQLite || mongodbstoretest.External() {
		return 2000
	}
	return 400
}
