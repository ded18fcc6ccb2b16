package capability_test

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sandbox is who holds the tokens of these tests.
var sandbox = spiffeid.RequireFromString("spiffe://cofferdam.test/sandbox/instance-1")
