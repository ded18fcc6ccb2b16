package conformance_test

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/worker/internal/conformance"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/scripted"
)

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		playProgram()
		os.Exit(0) //nolint:forbidigo // this process is the program
	}
	goleak.VerifyTestMain(m)
}

func TestScripted(t *testing.T) {
	conformance.Run(t, conformance.Setup{
		New:    func(*testing.T, *slog.Logger) harness.Adapter { return scripted.New() },
		Phrase: conformance.Script,
		Unsupported: map[string]string{
			"model error":      "it asks no model",
			"truncated stream": "it asks no model",
		},
	})
}
