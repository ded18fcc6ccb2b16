package controlplane

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/harnesses"
)

// A control plane that starts before the file broker waits for it, and not for ever.
func TestAStartWaitsForTheFileBroker(t *testing.T) {
	folder := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(folder, "greeting"), 0o700), os.WriteFile(filepath.Join(folder, "greeting", "SKILL.md"), []byte("say hello"), 0o600)); err != nil {
		t.Fatal(err)
	}
	drafts, err := agents.Parse([]byte(`{"agents":[{"agent_id":"a","harness":"native","adapter_version":"1","model_alias":"m","skills":["greeting"]}]}`), agentfiles.In(folder))
	if err != nil {
		t.Fatal(err)
	}
	for name, back := range map[string]bool{"it comes": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				contents := &agentstoretest.Contents{}
				contents.Away(fault.New(fault.DependencyUnavailable, "test"))
				if back {
					time.AfterFunc(10*time.Second, func() { contents.Away(nil) })
				}
				r := agents.NewRegistry(&agentstoretest.Memory{}, harnesses.New(), contents, slog.New(slog.DiscardHandler), time.Now)
				began := time.Now()
				err := seed(t.Context(), r, drafts)
				if took := time.Since(began); back != (err == nil) || !back && !fault.Is(err, fault.DependencyUnavailable) || took > 2*seedPatience {
					t.Errorf("%v after %v", err, took)
				}
				if n, err := r.Newest(t.Context(), "a"); (err == nil) != back {
					t.Errorf("version %d, %v", n.Version, err)
				}
			})
		})
	}
}
