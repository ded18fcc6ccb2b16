package agents

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// mostState bounds the thread state of a conversation of two short turns, in bytes.
const mostState = 512 << 10

// A tool of the ToolBroker is called once, its events carry the id of the tool and
// the broker's answer, and the model reads it. All of that is known to another
// worker, after the first was killed, from committed state and nothing else.
func TestABrokeredCallIsRememberedByAnotherWorker(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, "")
		name, line := w.sample(t)
		first := c.tell(t, `>>call fs.read_text_file {"path":"`+name+`"}`)
		calls := first.calls(t)
		if len(calls) != 1 || calls[0].Tool != toolRead || calls[0].how != "tool.finished" || !strings.Contains(string(calls[0].Result), line) {
			t.Fatalf("want one call of %s with the line as its result: %s", toolRead, first)
		}
		if !strings.Contains(string(calls[0].Args), name) {
			t.Errorf("the arguments are %s", calls[0].Args)
		}
		if !strings.Contains(first.text(t), line) {
			t.Errorf("the result did not come to the model: %q", first.text(t))
		}
		size := w.state(t, first.BindingID)
		t.Logf("the thread state of %s has %d bytes", a.name, size)
		if size == 0 || size > mostState {
			t.Errorf("the thread state has %d bytes, want 1 to %d", size, mostState)
		}
		before := c.binding(t, first.BindingID)
		c.kill(t, first.BindingID)

		second := c.tell(t, "What do you remember?")
		if said := second.text(t); !strings.Contains(said, line) {
			t.Errorf("the agent has forgotten the line: %q", said)
		}
		if len(second.calls(t)) > 0 {
			t.Errorf("it called something again: %s", second)
		}
		after := c.binding(t, second.BindingID)
		if after.Sandbox == nil || after.Sandbox.InstanceUID == before.Sandbox.InstanceUID || second.BindingID != first.BindingID || second.Epoch != first.Epoch {
			t.Errorf("the same sandbox, or another conversation: %+v, then %+v", before, after)
		}
	})
}

// state is the size of the newest committed thread state of a binding, in bytes.
func (w *world) state(t *testing.T, bindingID string) (size int) {
	t.Helper()
	stores, err := filepath.Glob(filepath.Join(w.Data, "state", "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stores {
		n, err := stateIn(t, path, bindingID)
		if err != nil {
			t.Fatal(err)
		}
		size = max(size, n)
	}
	return size
}

// stateIn reads a store; one without thread states has 0 bytes of them.
func stateIn(t *testing.T, path, bindingID string) (size int, err error) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var there int
	err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_master WHERE name = 'thread_snapshots'`).Scan(&there)
	if err != nil || there == 0 {
		return 0, err
	}
	err = db.QueryRowContext(t.Context(), `SELECT coalesce(max(length(payload)), 0) FROM thread_snapshots WHERE binding_id = ?`, bindingID).Scan(&size)
	return size, err
}
