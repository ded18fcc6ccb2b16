package agents_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
)

const withSkill = `{"agent_id":"a","harness":"native","adapter_version":"1.0.0","model_alias":"m","skills":["greeting"],"files":["handbook.txt"]`

// shop is a folder of an operator, and what its agents are kept in.
type shop struct {
	dir      string
	store    *agentstoretest.Memory
	contents *agentstoretest.Contents
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t.TempDir(), &agentstoretest.Memory{}, &agentstoretest.Contents{}}
	s.write(t, "greeting/SKILL.md", "say hello")
	s.write(t, "greeting/words.txt", "the same")
	s.write(t, "handbook.txt", "the same")
	return s
}

func (s *shop) write(t *testing.T, name, content string) {
	t.Helper()
	at := filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) drafts(t *testing.T, agent string) []agents.Draft {
	t.Helper()
	d, err := agents.Parse(one(agent), agentfiles.In(s.dir))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// start is a control plane that starts with the folder as it is now.
func (s *shop) start(t *testing.T, agent string) (*agents.Registry, error) {
	t.Helper()
	r := registryWith(t, s.store, s.contents)
	return r, r.Seed(t.Context(), s.drafts(t, agent))
}

func (s *shop) started(t *testing.T, agent string, version uint32) agents.Agent {
	t.Helper()
	r, err := s.start(t, agent)
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Newest(t.Context(), "a")
	if err != nil || a.Version != version {
		t.Fatalf("version %d, %v, want %d", a.Version, err, version)
	}
	return a
}

func (s *shop) wantKept(t *testing.T, content string, puts int) {
	t.Helper()
	if got := s.contents.Of(blob.Of([]byte(content))); string(got.Bytes) != content || got.Puts != puts || !got.Kept {
		t.Errorf("%q was put %d times and is kept: %v; want %d times", content, got.Puts, got.Kept, puts)
	}
}

// A5: a version names bytes; other bytes in the folder are another version, and what a
// conversation began with stays.
func TestAVersionNamesTheBytesOfItsFiles(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.started(t, withSkill+`}`, 1)
	if len(first.Skills) != 2 || len(first.Files) != 1 || first.Skills[0].Path != "greeting/SKILL.md" || first.Skills[1].Path != "greeting/words.txt" ||
		first.Files[0].Path != "handbook.txt" || first.Files[0].SHA256 != first.Skills[1].SHA256 || first.Files[0].Size != 8 {
		t.Fatalf("%+v, %+v", first.Skills, first.Files)
	}
	s.wantKept(t, "say hello", 1)
	s.wantKept(t, "the same", 1)
	s.started(t, withSkill+`}`, 1) // a restart stores nothing
	s.wantKept(t, "say hello", 1)
	s.write(t, "greeting/SKILL.md", "say good-bye")
	second := s.started(t, withSkill+`}`, 2)
	if second.Skills[0].SHA256 == first.Skills[0].SHA256 || second.Skills[1] != first.Skills[1] {
		t.Errorf("%+v", second.Skills)
	}
	s.wantKept(t, "say good-bye", 1)
	s.wantKept(t, "say hello", 1)
	s.wantKept(t, "the same", 2) // checked, and not stored again
	if old, err := registryWith(t, s.store, s.contents).At(t.Context(), "a", 1); err != nil || old.Skills[0] != first.Skills[0] {
		t.Errorf("version 1: %+v, %v", old.Skills, err)
	}
	s.write(t, "greeting/more.txt", "more")
	s.started(t, withSkill+`}`, 3)
	// A version that is named never changes.
	named := withSkill + `,"version":3}`
	s.started(t, named, 3)
	s.write(t, "greeting/more.txt", "another")
	if _, err := s.start(t, named); err == nil || !strings.Contains(err.Error(), "versions never change") {
		t.Errorf("%v", err)
	}
}

// Whatever fails when a control plane starts, no version names what is not there, and the
// next start makes it good.
func TestAStartThatFailsIsMadeGood(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.DependencyUnavailable, "test")
	s := newShop(t)
	s.contents.Away(away)
	if _, err := s.start(t, withSkill+`}`); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("without the file broker: %v", err)
	}
	if n, err := s.store.Newest(t.Context(), "a"); err != nil || n.Version != 0 {
		t.Errorf("version %d, %v", n.Version, err)
	}
	s.contents.Away(nil)
	// It is killed when the version is there, and before it said that it names anything.
	killed := registryWith(t, killedBeforeKeep{s.store, s.contents}, s.contents)
	if err := killed.Seed(t.Context(), s.drafts(t, withSkill+`}`)); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("killed: %v", err)
	}
	s.contents.Away(nil)
	if s.contents.Of(blob.Of([]byte("say hello"))).Kept {
		t.Fatal("it is kept")
	}
	s.contents.Forget(blob.Of([]byte("say hello"))) // it was collected
	s.started(t, withSkill+`}`, 1)
	s.wantKept(t, "say hello", 1)
	s.wantKept(t, "the same", 1)
}

// killedBeforeKeep lets nobody ask the contents after an insert.
type killedBeforeKeep struct {
	agents.Store
	contents *agentstoretest.Contents
}

func (k killedBeforeKeep) Insert(ctx context.Context, r agents.Record) (bool, error) {
	made, err := k.Store.Insert(ctx, r)
	k.contents.Away(fault.New(fault.DependencyUnavailable, "test"))
	return made, err
}

// A file that is not what it was when it was read makes no version.
func TestAFileThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	drafts := s.drafts(t, withSkill+`}`)
	s.write(t, "greeting/SKILL.md", "something else")
	err := registryWith(t, s.store, s.contents).Seed(t.Context(), drafts)
	if err == nil || !strings.Contains(err.Error(), `agents[0]: "greeting/SKILL.md" changed while it was read; start again`) {
		t.Errorf("%v", err)
	}
	if n, err := s.store.Newest(t.Context(), "a"); err != nil || n.Version != 0 {
		t.Errorf("version %d, %v", n.Version, err)
	}
}

// What is wrong is told by agent and field; then there is no version of anything.
func TestWhatAFileCannotHave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for member, want := range map[string]string{
		`"skills":["absent"]`:              `agents[0]: skills[0]: there is no "absent"`,
		`"files":["greeting","greeting/"]`: "agents[0]: files[1]: another entry",
		`"skills":[{"path":"a/SKILL.md"}]`: "agents[0]: skills: paths, relative to",
		`"files":"handbook.txt"`:           "agents[0]: files: paths, relative to",
	} {
		_, err := agents.Parse(one(`{"agent_id":"a","harness":"native","adapter_version":"1.0.0","model_alias":"m",`+member+`}`), agentfiles.In(s.dir))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", member, err, want)
		}
	}
}

// An operator's PUT names contents that are kept, with what it changes; what is not there
// is told by its field, and nothing is made.
func TestPutNamesContentsThatAreKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.started(t, withSkill+`}`, 1)
	r := registryWith(t, s.store, s.contents)
	named := func(sum string) string {
		return `,"prompt":"x","skills":[{"path":"greeting/SKILL.md","sha256":"` + first.Skills[0].SHA256 + `","size":9,"mime_type":"text/markdown"},` +
			`{"path":"greeting/b","sha256":"` + sum + `","size":8}],"files":[]`
	}
	put(t, r, draft(t, "a", named(first.Skills[1].SHA256)), 1, 2)
	if a, err := r.At(t.Context(), "a", 2); err != nil || len(a.Skills) != 2 || a.Skills[0] != first.Skills[0] || a.Skills[1].Path != "greeting/b" || len(a.Files) != 0 {
		t.Errorf("%+v, %v", a.Skills, err)
	}
	unknown := strings.Repeat("0", 64)
	refused(t, r, draft(t, "a", named(unknown)), 2, fault.InvalidRequest, "skills[1].sha256: no content of this SHA-256 and size is kept; name one")
	refused(t, r, draft(t, "a", `,"files":[{"path":"handbook.txt","sha256":"`+first.Files[0].SHA256+`","size":7}]`), 2, fault.InvalidRequest, "files[0].sha256: no content")
	refused(t, r, draft(t, "a", `,"skills":[{"path":"../x","sha256":"`+unknown+`","size":-1}]`), 2, fault.InvalidRequest, "skills[0].path: ", "skills[0].size: ")
	s.contents.Away(fault.New(fault.DependencyUnavailable, "test"))
	refused(t, r, draft(t, "a", `,"files":[{"path":"handbook.txt","sha256":"`+first.Files[0].SHA256+`","size":8}]`), 2, fault.DependencyUnavailable)
	if n, err := s.store.Newest(t.Context(), "a"); err != nil || n.Version != 2 {
		t.Errorf("version %d, %v", n.Version, err)
	}
	if _, err := agents.NewDraft("a", []byte(`{"harness":"native","skills":["greeting"]}`)); err == nil {
		t.Error("a path was taken from the API")
	}
}
