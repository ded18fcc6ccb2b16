package lease

import (
	"context"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Scope is what one capability shall allow.
type Scope struct {
	Audience capability.Audience
	Tools    []string
	// ApproveTools are those of Tools whose calls need a person's approval.
	ApproveTools []string
	Memory       []string
	Handles      []string
	ModelAlias   string
}

// Minter asks the capability service. owner is the replica that drives the run;
// without a run in the envelope it is empty.
type Minter interface {
	Mint(ctx context.Context, env fence.Envelope, subject, owner string, scopes []Scope) ([]worker.Token, error)
}

// ToolLister asks the ToolBroker to describe the tools of an agent. Tools that
// cannot be had now are left out and named in unavailable.
type ToolLister interface {
	ListTools(ctx context.Context, patterns []string) (tools []worker.Tool, unavailable []string, err error)
}
