package bindingtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	bindingtest.Run(t, func(*testing.T) binding.Backend { return bindingtest.NewMemory() })
}
