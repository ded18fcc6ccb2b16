package toolbroker

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/toolbroker/internal/hostile"
)

func TestMain(m *testing.M) {
	hostile.MainIfAsked()
	code := m.Run()
	if err := authorization.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
