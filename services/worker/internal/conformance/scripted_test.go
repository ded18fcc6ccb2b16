package conformance_test

import (
	"flag"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/worker/internal/conformance"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/scripted"
)

func TestMain(m *testing.M) {
	runnertest.Main()
	flag.Parse()
	// Most of what is tried waits for something: more of it can run at once than
	// there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestScripted(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Setup{
		New:    func(*testing.T, string, *slog.Logger) harness.Adapter { return scripted.New() },
		Phrase: conformance.Script,
		Unsupported: map[string]string{
			"skill":            "it has no tools of its own, and a script follows no skill",
			"model error":      "it asks no model",
			"truncated stream": "it asks no model",
		},
	})
}
