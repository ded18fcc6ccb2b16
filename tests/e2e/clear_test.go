package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// What was said before a clear is not remembered after it, in another sandbox;
// the conversation before it remembers.
func TestAClearedConversationRemembersNothing(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	mark := word()
	first := c.tell(t, "Remember "+mark)
	before := c.worker(t, first.BindingID)
	if r := c.tell(t, "What do you remember?"); !strings.Contains(r.text(t), mark) {
		t.Fatalf("before the clear it remembers: %s", r)
	}
	a, err := c.client.Do(t.Context(), http.MethodPost, "/api/v1/conversations/"+c.conversation+"/clear", "application/json",
		strings.NewReader(`{"agent_id":"demo","epoch":0}`))
	if err != nil || a.Err() != nil {
		t.Fatal(err, a.Err())
	}
	r := c.tell(t, "What do you remember?")
	if strings.Contains(r.text(t), mark) || r.Epoch != first.Epoch+1 {
		t.Errorf("after the clear, in epoch %d, it remembers: %s", r.Epoch, r)
	}
	if after := c.worker(t, first.BindingID); after.PID == before.PID {
		t.Error("it goes on in the same sandbox")
	}
}
