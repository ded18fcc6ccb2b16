package api

import (
	"net/http"
	"regexp"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

var bindingPattern = regexp.MustCompile(`^hs_[A-Za-z0-9_-]{1,125}$`)

// bindingBody tells an operator where a conversation is and nothing of whose it
// is or what it says.
type bindingBody struct {
	BindingID       string        `json:"binding_id"`
	Epoch           uint32        `json:"epoch"`
	Generation      uint32        `json:"lease_generation"`
	AgentID         string        `json:"agent_id"`
	AgentVersion    uint32        `json:"agent_version"`
	HarnessID       string        `json:"harness_id"`
	DurableRevision uint64        `json:"durable_revision"`
	Run             *runBody      `json:"run,omitempty"`
	Ending          int           `json:"ending"`
	Lease           *leaseBody    `json:"lease,omitempty"`
	Sandbox         *sandboxBody  `json:"sandbox,omitempty"`
	Refusals        []refusalBody `json:"fence_refusals,omitempty"`
	UpdatedAt       time.Time     `json:"updated_at"`
}

type runBody struct {
	RunID    string    `json:"run_id"`
	Events   uint64    `json:"events"`
	Admitted int       `json:"admitted_effects"`
	Deadline time.Time `json:"deadline"`
}

type leaseBody struct {
	ClaimName   string `json:"claim_name"`
	ClaimUID    string `json:"claim_uid,omitempty"`
	SandboxUID  string `json:"sandbox_uid,omitempty"`
	InstanceUID string `json:"instance_uid,omitempty"`
	State       string `json:"state"`
	Profile     string `json:"profile,omitempty"`
	ImageDigest string `json:"worker_image_digest,omitempty"`
}

type sandboxBody struct {
	InstanceUID string `json:"instance_uid"`
	SPIFFEID    string `json:"spiffe_id"`
	PID         int    `json:"pid,omitempty"`
}

type refusalBody struct {
	At         time.Time `json:"at"`
	What       string    `json:"what"`
	Generation uint32    `json:"lease_generation"`
}

func (a *API) listBindings(w http.ResponseWriter, r *http.Request, _ runs.Caller) error {
	limit, err := pageLimit(r)
	if err != nil {
		return err
	}
	after, there, err := parameter(r, "after")
	if err != nil {
		return err
	}
	if there && !bindingPattern.MatchString(after) {
		return fault.New(fault.InvalidRequest, "api.listBindings", fault.Detail("after: a binding id"))
	}
	list, err := a.cfg.Runs.Bindings(r.Context(), after, limit)
	if err != nil {
		return err
	}
	out := struct {
		Bindings   []bindingBody `json:"bindings"`
		NextCursor string        `json:"next_cursor,omitempty"`
	}{Bindings: make([]bindingBody, len(list))}
	for i, b := range list {
		out.Bindings[i] = bindingView(b)
		out.NextCursor = b.Record.ID
	}
	return writeJSON(w, http.StatusOK, out)
}

func (a *API) getBinding(w http.ResponseWriter, r *http.Request, _ runs.Caller) error {
	id := r.PathValue("binding")
	if !bindingPattern.MatchString(id) {
		return fault.New(fault.NotFound, "api.getBinding")
	}
	b, err := a.cfg.Runs.Binding(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, bindingView(b))
}

func bindingView(b runs.Binding) bindingBody {
	r := b.Record
	out := bindingBody{
		BindingID: r.ID, Epoch: r.Epoch, Generation: r.Generation, AgentID: r.Identity.AgentID, AgentVersion: r.Identity.AgentVersion,
		HarnessID: r.Identity.HarnessID, DurableRevision: r.Head.Revision, Ending: len(r.Ending), UpdatedAt: r.UpdatedAt,
		Run: runView(r.Run), Lease: leaseView(r.Lease),
	}
	if in := b.Instance; in != nil {
		out.Sandbox = &sandboxBody{InstanceUID: in.UID, SPIFFEID: in.ID.String(), PID: in.PID}
	}
	for _, f := range b.Refusals {
		out.Refusals = append(out.Refusals, refusalBody{At: f.At, What: f.What, Generation: f.Generation})
	}
	return out
}

func runView(r *binding.Run) *runBody {
	if r == nil {
		return nil
	}
	return &runBody{RunID: r.ID, Events: r.EventHead, Admitted: len(r.Admitted), Deadline: r.Deadline}
}

func leaseView(l *binding.Lease) *leaseBody {
	if l == nil {
		return nil
	}
	return &leaseBody{
		ClaimName: l.ClaimName, ClaimUID: l.ClaimUID, SandboxUID: l.SandboxUID, InstanceUID: l.InstanceUID,
		State: string(l.State), Profile: l.Profile, ImageDigest: l.ImageDigest,
	}
}
