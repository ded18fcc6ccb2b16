package stack

import (
	"context"
	"fmt"
	"os"
	"time"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
)

const organization = issuer.Organization

// ModelProxy is the part that Kill takes for the model proxy.
const ModelProxy = modelProxy

// Info says where a stack answers. As JSON it is the one line of `cofferdam up`.
type Info struct {
	Ready bool `json:"ready"`
	// API and Operator are base URLs.
	API      string `json:"api"`
	Operator string `json:"operator"`
	// Replicas are the base URLs of the public API of all replicas, where there are
	// several; API is the first of them.
	Replicas []string `json:"replicas,omitempty"`
	// Agents are the ids of all agents.
	Agents []string `json:"agents"`
}

// Info says where the stack answers.
func (s *Stack) Info() Info {
	l := s.listeners[controlPlane]
	info := Info{Ready: true, API: l[publicListener].http(), Operator: l[operatorListener].http(), Agents: s.catalogue.agents}
	if s.cfg.Replicas > 1 {
		for _, name := range s.cfg.replicaNames() {
			info.Replicas = append(info.Replicas, s.listeners[name][publicListener].http())
		}
	}
	return info
}

// Dir is the data folder.
func (s *Stack) Dir() datadir.Dir { return s.dir }

// announce waits until both public listeners answer and tells those who read the
// data folder.
func (s *Stack) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	info := s.Info()
	for _, url := range append([]string{info.API, info.Operator}, info.Replicas...) {
		if err := s.prober.waitAnswer(ctx, url+"/"); err != nil {
			return fmt.Errorf("%s does not answer: %w\nits log: %s", controlPlane, err, s.dir.Log(controlPlane))
		}
	}
	s.onStop(func(time.Time) error { return s.dir.ClearRunning() })
	return s.dir.SetRunning(datadir.Running{API: info.API, Operator: info.Operator, Agents: info.Agents, PID: os.Getpid()})
}
