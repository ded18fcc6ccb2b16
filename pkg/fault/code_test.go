package fault_test

import (
	"net/http"
	"slices"
	"testing"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/fault"
)

type row struct {
	category fault.Category
	http     int
	connect  connect.Code
	retry    bool
	codes    []fault.Code
}

// contract is the table "Every code" of the Harness Adapter v1 contract, line
// by line, in its own words.
func contract() []row {
	return []row{
		{"protocol", 400, connect.CodeInvalidArgument, false, []fault.Code{"invalid_request", "tool_arguments_invalid", "handle_invalid"}},
		{"protocol", 413, connect.CodeInvalidArgument, false, []fault.Code{"request_too_large", "state_too_large"}},
		{"configuration", 422, connect.CodeFailedPrecondition, false, []fault.Code{"protocol_unsupported", "worker_mismatch", "harness_options_invalid"}},
		{"authentication", 401, connect.CodeUnauthenticated, false, []fault.Code{"unauthenticated", "capability_missing", "capability_expired", "capability_invalid", "audience_mismatch"}},
		{"authorization", 403, connect.CodePermissionDenied, false, []fault.Code{"caller_not_allowed", "capability_scope", "tool_not_allowed", "tool_denied", "memory_scope_denied", "handle_denied", "access_denied"}},
		{"authorization", 409, connect.CodeAborted, false, []fault.Code{"stale_lease"}},
		{"conflict", 409, connect.CodeAborted, false, []fault.Code{"binding_conflict", "already_running", "interrupt_conflict", "revision_conflict", "memory_revision_conflict", "idempotency_conflict"}},
		{"authorization", 409, connect.CodeFailedPrecondition, false, []fault.Code{"approval_required"}},
		{"not_found", 404, connect.CodeNotFound, false, []fault.Code{"not_found", "interrupt_not_found", "handle_expired"}},
		{"throttled", 429, connect.CodeResourceExhausted, true, []fault.Code{"rate_limited"}},
		{"capacity", 503, connect.CodeResourceExhausted, true, []fault.Code{"sandbox_capacity", "capacity"}},
		{"unavailable", 503, connect.CodeUnavailable, true, []fault.Code{"sandbox_not_ready", "dependency_unavailable", "tool_unavailable", "model_unavailable"}},
		{"unavailable", 503, connect.CodeUnavailable, false, []fault.Code{"sandbox_evicted", "control_plane_lost"}},
		{"capacity", 503, connect.CodeResourceExhausted, false, []fault.Code{"sandbox_limit"}},
		{"timeout", 504, connect.CodeDeadlineExceeded, false, []fault.Code{"deadline_exceeded"}},
		{"protocol", 502, connect.CodeInternal, false, []fault.Code{"protocol", "model_failed"}},
		{"persistence", 503, connect.CodeUnavailable, true, []fault.Code{"persistence_failed"}},
		{"persistence", 503, connect.CodeUnavailable, false, []fault.Code{"thread_durability_uncertain", "tool_outcome_unknown"}},
		{"authorization", 422, connect.CodeFailedPrecondition, false, []fault.Code{"memory_rejected"}},
		{"cancelled", 499, connect.CodeCanceled, false, []fault.Code{"cancelled"}},
		{"configuration", 501, connect.CodeUnimplemented, false, []fault.Code{"not_implemented"}},
		{"internal", 500, connect.CodeInternal, false, []fault.Code{"internal"}},
	}
}

func TestCodesAreTheContracts(t *testing.T) {
	t.Parallel()
	var all []fault.Code
	for _, r := range contract() {
		for _, c := range r.codes {
			all = append(all, c)
			if !c.Known() || c.Category() != r.category || c.HTTPStatus() != r.http || c.Retryable() != r.retry || fault.ToConnect(fault.New(c, "op")).Code() != r.connect {
				t.Errorf("%s: known %v, category %s, HTTP %d, retry %v, connect %v; want %+v",
					c, c.Known(), c.Category(), c.HTTPStatus(), c.Retryable(), fault.ToConnect(fault.New(c, "op")).Code(), r)
			}
			if m := c.Message(); len(m) < 10 || m[len(m)-1] != '.' {
				t.Errorf("%s: message %q", c, m)
			}
		}
	}
	got := fault.Codes()
	slices.Sort(all)
	slices.Sort(got)
	if !slices.Equal(all, got) {
		t.Errorf("codes\n%v, the contract has\n%v", got, all)
	}
}

func TestUnknownCode(t *testing.T) {
	t.Parallel()
	c := fault.Code("made_up")
	if c.Known() || c.Category() != fault.CategoryInternal || c.HTTPStatus() != http.StatusInternalServerError || c.Retryable() {
		t.Errorf("%s is %v, %d", c, c.Category(), c.HTTPStatus())
	}
	if e := fault.New(c, "op"); e.Code() != fault.Internal {
		t.Errorf("an error of an unknown code is %s", e.Code())
	}
}
