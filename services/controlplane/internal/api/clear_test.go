package api_test

import (
	"net/http"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
)

const clearRoute = "/api/v1/conversations/c1/clear"

func TestClear(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksOnce})
	id := f.start(t, "hi")
	f.ended(t, id)
	type cleared struct {
		BindingID string `json:"binding_id"`
		Epoch     uint32
	}
	var first, again, next cleared
	f.post(t, clearRoute, `{"agent_id":"demo","epoch":0}`).json(t, &first)
	f.post(t, clearRoute, `{"agent_id":"demo","epoch":0}`).json(t, &again)
	if first.BindingID == "" || first.Epoch != 1 || again != first {
		t.Errorf("%+v, and again %+v", first, again)
	}
	var s interruptState
	if f.get(t, "/api/v1/conversations/c1/interrupt-state?agent_id=demo").json(t, &s); s.Interrupt != nil {
		t.Errorf("it still waits for %+v", s)
	}
	if f.post(t, clearRoute, `{"agent_id":"demo"}`).json(t, &next); next.Epoch != 2 {
		t.Errorf("%+v", next)
	}
	refused(t, f.post(t, clearRoute, `{"agent_id":"demo","epoch":9}`), http.StatusConflict, fault.RevisionConflict, "epoch: ")
	refused(t, f.post(t, clearRoute, `{}`), http.StatusBadRequest, fault.InvalidRequest, "agent_id: ")
	refused(t, f.post(t, clearRoute, `{"agent_id":"demo","epoch":-1}`), http.StatusBadRequest, fault.InvalidRequest, "body: /epoch: ")
	refused(t, f.post(t, "/api/v1/conversations/c2/clear", `{"agent_id":"demo"}`), http.StatusNotFound, fault.NotFound, "")
	refused(t, f.send(t, f.requestTo(t, f.public, "user-2", http.MethodPost, clearRoute, `{"agent_id":"demo"}`)), http.StatusNotFound, fault.NotFound, "")
	f.grants.revoke("user-1", authz.CanInvoke, authz.AgentID("demo"))
	refused(t, f.post(t, clearRoute, `{"agent_id":"demo"}`), http.StatusForbidden, fault.AccessDenied, "")
}
