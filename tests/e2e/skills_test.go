package e2e

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cofferdam.dev/tests/stack"
)

// skilled is an agent that has a skill and a file, beside the file that names it.
const skilled = `{"agents":[{"agent_id":"demo","name":"Skilled","organization":"local","harness":"native","adapter_version":"1.1.0","model_alias":"demo","tools":["fs.*","gate.*"],
"skills":["skills/greeting"],"files":["handbook.txt"]}]}`

// shelf is the folder of an operator.
type shelf struct{ folder string }

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{t.TempDir()}
	s.write(t, "agents.json", skilled)
	return s
}

func (s *shelf) agents() string { return filepath.Join(s.folder, "agents.json") }

// write puts a text there, or a new one.
func (s *shelf) write(t *testing.T, name, text string) string {
	t.Helper()
	if text == "" {
		text = "text-" + rand.Text()
	}
	at := filepath.Join(s.folder, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}

// reads fails unless the conversation's worker has the text at a path of its workspace.
func (c *talk) reads(t *testing.T, path, want string) turn {
	t.Helper()
	args, err := json.Marshal(map[string]string{"path": path})
	if err != nil {
		t.Fatal(err)
	}
	r := c.tell(t, ">>call read_file "+string(args))
	results := r.of("tool.finished")
	if len(results) != 1 || !strings.Contains(string(results[0].Data), want) {
		t.Errorf("%s without %q: %s", path, want, r)
	}
	return r
}

// What an operator put beside the file of agents is read by the agent of every
// conversation, in every worker; other bytes are another version, and a conversation stays
// on the one that it began with.
func TestAnAgentReadsItsSkillsAndFiles(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	skill := s.write(t, "skills/greeting/SKILL.md", "")
	s.write(t, "skills/greeting/words/hello.txt", skill) // the same content at another place
	handbook := s.write(t, "handbook.txt", "")
	w, err := open(stack.Need(t), "--agents", s.agents())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	c := w.talk()
	r := c.reads(t, "skills/greeting/SKILL.md", skill)
	first := c.binding(t, r.BindingID).Generation
	c.reads(t, "skills/greeting/words/hello.txt", skill)
	c.reads(t, "files/handbook.txt", handbook)
	kill(t, c.worker(t, r.BindingID))
	c.reads(t, "skills/greeting/SKILL.md", skill)
	second := c.binding(t, r.BindingID).Generation
	if second <= first {
		t.Errorf("generation %d after the worker of generation %d was killed", second, first)
	}

	t.Run("without the file broker", func(t *testing.T) { w.bindsNobody(t, skill) })

	changed := s.write(t, "skills/greeting/SKILL.md", "")
	back := w.killProgram(t, "controlplane")
	back()
	w.answers(t)
	later := w.talk()
	if r := later.reads(t, "skills/greeting/SKILL.md", changed); later.binding(t, r.BindingID).AgentVersion != 2 {
		t.Errorf("a conversation that began after the change: %+v", later.binding(t, r.BindingID))
	}
	c.reads(t, "skills/greeting/SKILL.md", skill) // in another worker: the first one ended with its control plane
	if b := c.binding(t, r.BindingID); b.AgentVersion != 1 || b.Generation <= second {
		t.Errorf("the conversation that began before: %+v", b)
	}
}

// bindsNobody: a run whose agent's files cannot be had ends in time and says that it can be
// asked for again; then it has them.
func (w *world) bindsNobody(t *testing.T, skill string) {
	broker, err := w.Program("filebroker")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(broker.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() error { return syscall.Kill(broker.PID, syscall.SIGCONT) }
	t.Cleanup(func() { _ = goOn() }) // also where the test fails
	c := w.talk()
	r := c.say(t, "look")
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	var f struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}
	if data(t, r.last(), &f); f.Code != "dependency_unavailable" || !f.Retryable {
		t.Errorf("ended as %s %+v", r.last().Type, f)
	}
	c.reads(t, "skills/greeting/SKILL.md", skill)
}
