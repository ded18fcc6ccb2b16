package mongostore_test

import (
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/binding/mongostore"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	t.Parallel()
	server := mongodbstoretest.Server(t)
	bindingtest.Run(t, func(t *testing.T) binding.Backend {
		t.Helper()
		s, err := mongostore.Open(t.Context(), mongodbstoretest.OpenLossy(t, server))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
