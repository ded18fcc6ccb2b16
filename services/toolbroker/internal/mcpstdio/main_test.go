package mcpstdio_test

import (
	"fmt"
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
	code := m.Run()
	if intruderDir != "" {
		_ = os.RemoveAll(intruderDir)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
