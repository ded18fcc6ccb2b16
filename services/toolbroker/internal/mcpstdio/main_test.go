package mcpstdio_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/toolbroker/internal/hostile"
)

func TestMain(m *testing.M) {
	hostile.MainIfAsked()
	if len(os.Args) > 1 && os.Args[1] == asBroker {
		broker()
		return
	}
	goleak.VerifyTestMain(m)
}
