package native

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// use has the model call one tool, and gives the result that the model reads.
func (s *stand) use(t *testing.T, runID, name, args string, in ...harness.File) (events, string) {
	t.Helper()
	s.model.play(callsTool(name, args), answer1("ok"))
	got := s.run(t, runID, "go", in...)
	got.wantFinished(t, "stop")
	last := s.model.last(t)
	return got, last[len(last)-1].Content
}

// workspace has a manifest, and things around it that nobody may read.
func workspace(t *testing.T) (string, func(*harness.Construction)) {
	t.Helper()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	for name, content := range map[string]string{"skills/a/SKILL.md": "# ä skill\n" + strings.Repeat("ä", 40<<10), "files/b.bin": "\xff\x00", "other.txt": "not listed", "files/empty": ""} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	must(t, os.Symlink(outside, filepath.Join(dir, "files", "link")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "files", "pipe"), 0o600))
	return dir, func(c *harness.Construction) {
		for _, p := range []string{"skills/a/SKILL.md", "files/b.bin", "files/link", "files/pipe", "files/gone", "files/empty"} {
			c.Manifest = append(c.Manifest, harness.Materialized{Path: p, MIMEType: "text/plain", Size: 7})
		}
	}
}

func TestFileTools(t *testing.T) {
	dir, manifest := workspace(t)
	s := standIn(t, dir, manifest)
	s.uploads = []harness.Upload{{Handle: "up-small", MaxBytes: 3}, {Handle: "up-large", MaxBytes: 100}}
	s.files.content["h"] = "zero\none\x00\n"
	in := harness.File{Handle: "h", DisplayName: "notes.txt", MIMEType: "application/x-notes", Size: 10}

	_, text := s.use(t, "run-1", "list_files", `{}`, in)
	var list struct {
		Files []listed `json:"files"`
	}
	must(t, json.Unmarshal([]byte(text), &list))
	if len(list.Files) != 7 || list.Files[0] != (listed{"turn/1", "notes.txt", "application/x-notes", 10}) || list.Files[1].Path != "skills/a/SKILL.md" {
		t.Errorf("listed: %s", text)
	}
	if _, text = s.use(t, "run-2", "read_file", `{"path":"turn/1","offset":5}`, in); text != `{"path":"turn/1","size":10,"offset":5,"text":"one`+"\ufffd"+`\n"}` {
		t.Errorf("read: %s", text)
	}
	_, text = s.use(t, "run-3", "read_file", `{"path":"skills/a/SKILL.md","limit":4}`)
	var part readPart
	must(t, json.Unmarshal([]byte(text), &part))
	if part.Text != "# ä" || part.NextOffset != 4 || part.Size != int64(len("# ä skill\n"))+80<<10 {
		t.Errorf("read: %+v", part)
	}
	// Part by part the whole file, never half a character.
	whole := ""
	for offset, n := int64(0), 4; ; n++ {
		_, text = s.use(t, fmt.Sprint("run-", n), "read_file", fmt.Sprintf(`{"path":"skills/a/SKILL.md","offset":%d,"limit":40001}`, offset))
		part = readPart{}
		must(t, json.Unmarshal([]byte(text), &part))
		whole += part.Text
		if offset = part.NextOffset; offset == 0 {
			break
		}
	}
	if int64(len(whole)) != part.Size || strings.ContainsRune(whole, '\ufffd') {
		t.Errorf("%d bytes of %d", len(whole), part.Size)
	}

	got, text := s.use(t, "run-90", "write_file", `{"name":"out.md","content":"hello","mime_type":"text/markdown"}`)
	if f := of[event.ToolFinished](got)[0]; f.ResultRef != "obj-up-large" || !strings.Contains(text, `"file_id":"obj-up-large"`) {
		t.Errorf("%+v, %s", f, text)
	}
	if s.files.written["up-large"] != "out.md|text/markdown|hello" {
		t.Errorf("written: %v", s.files.written)
	}
}

// What is not a text that was listed is not read, and no link or pipe leads
// anywhere.
func TestReadFileStaysInside(t *testing.T) {
	dir, manifest := workspace(t)
	for _, path := range []string{
		"files/link", "files/pipe", "files/gone", "other.txt", "../secret", "/etc/passwd", "skills", "skills/a/../../other.txt", "turn/1", "turn/0", "turn/-1", "turn/x", "", ".",
	} {
		got, text := standIn(t, dir, manifest).use(t, "run-1", "read_file", fmt.Sprintf(`{"path":%q}`, path))
		if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(fault.NotFound) || strings.Contains(text, "secret") {
			t.Errorf("%q: %+v, the model reads %s", path, e, text)
		}
	}
	for args, code := range map[string]fault.Code{
		`{"path":"files/b.bin"}`:                        fault.InvalidRequest,
		`{"path":"skills/a/SKILL.md","offset":3}`:       fault.InvalidRequest, // within a character
		`{"path":"skills/a/SKILL.md","offset":-1}`:      fault.ToolArgumentsInvalid,
		`{"path":"skills/a/SKILL.md","limit":0}`:        fault.ToolArgumentsInvalid,
		`{"path":"skills/a/SKILL.md","limit":49153}`:    fault.ToolArgumentsInvalid,
		`{"path":"skills/a/SKILL.md","recursive":true}`: fault.ToolArgumentsInvalid,
		`{}`: fault.ToolArgumentsInvalid,
	} {
		got, _ := standIn(t, dir, manifest).use(t, "run-1", "read_file", args)
		if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(code) {
			t.Errorf("%s: %+v", args, e)
		}
	}
	for _, args := range []string{`{"path":"files/empty"}`, `{"path":"skills/a/SKILL.md","offset":99999999}`} {
		if _, text := standIn(t, dir, manifest).use(t, "run-1", "read_file", args); !strings.Contains(text, `"text":""`) {
			t.Errorf("%s: %s", args, text)
		}
	}
}

func TestWriteFileRefused(t *testing.T) {
	for args, code := range map[string]fault.Code{
		`{"name":"a","content":"` + strings.Repeat("x", 101) + `"}`: fault.RequestTooLarge,
		`{"name":"a/b","content":"x"}`:                              fault.ToolArgumentsInvalid,
		`{"name":"..","content":"x"}`:                               fault.ToolArgumentsInvalid,
		`{"name":"","content":"x"}`:                                 fault.ToolArgumentsInvalid,
		`{"name":"a","content":"x","mime_type":"image/png"}`:        fault.ToolArgumentsInvalid,
	} {
		s := newStand(t)
		s.uploads = []harness.Upload{{Handle: "up", MaxBytes: 100}}
		got, _ := s.use(t, "run-1", "write_file", args)
		if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(code) || len(s.files.written) != 0 {
			t.Errorf("%.60s: %+v", args, e)
		}
	}
	s := newStand(t)
	got, _ := s.use(t, "run-1", "write_file", `{"name":"a","content":"x"}`)
	if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(fault.Capacity) {
		t.Errorf("without a handle: %+v", e)
	}
}

// A built-in tool is offered only where it can do something.
func TestBuiltinsOffered(t *testing.T) {
	dir, manifest := workspace(t)
	for name, c := range map[string]struct {
		stand *stand
		in    []harness.File
		want  []string
	}{
		"nothing":    {newStand(t), nil, nil},
		"a file":     {newStand(t), []harness.File{{Handle: "x", MIMEType: "image/png"}}, []string{"list_files", "read_file"}},
		"a manifest": {standIn(t, dir, manifest), nil, []string{"list_files", "read_file"}},
		"an upload":  {func() *stand { s := newStand(t); s.uploads = []harness.Upload{{Handle: "u"}}; return s }(), nil, []string{"write_file"}},
		"memory":     {newStand(t, remembering), nil, []string{"memory_get", "memory_search", "memory_put", "memory_delete"}},
		"forms":      {newStand(t, func(c *harness.Construction) { c.Interrupts.FormInput = true }), nil, []string{"ask_user"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.stand.model.play(answer1("ok"))
			c.stand.run(t, "run-1", "hi", c.in...).wantFinished(t, "stop")
			offered := c.stand.asked(t, chatWire()).tools[2:]
			if !slices.Equal(offered, c.want) {
				t.Errorf("offered %v", offered)
			}
		})
	}
}
