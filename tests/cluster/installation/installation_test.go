//go:build cluster

// Package installation tests overlays/development as a whole on a real Kubernetes: `make test-installation` starts the
// cluster and runs these inside its network, in the folder tests/cluster.
package installation

import (
	"os"
	"testing"

	"cofferdam.dev/tests/cluster/internal/installation"
)

// config is what the tests of this package have beside the overlay.
var config = installation.Config{
	Agents:   []map[string]any{keptDefinition, swappedAgent},
	Servers:  []map[string]any{keptServer},
	Profiles: []map[string]any{swappedProfile},
	// The vector rank of memory is off by default.
	Components: []string{"components/embeddings"}, Settings: embeddings,
}

func TestMain(m *testing.M) { os.Exit(installation.Main(m)) }
