package toolbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/npmpeers"
)

// reference is the MCP project's own servers behind the broker, each over stdio
// (namespace NAME-stdio) and over streamable HTTP (NAME-http).
type reference struct {
	*session

	served string // the folder of the filesystem servers, "-http" at its end for that over HTTP
}

var referenceTools = map[string][]string{
	"everything": {
		"echo", "get-sum", "get-env", "get-structured-content", "get-tiny-image", "get-annotated-message", "get-resource-links",
		"trigger-long-running-operation", "trigger-sampling-request", "get-roots-list", "trigger-url-elicitation",
		"trigger-elicitation-request",
	},
	"filesystem": {"list_allowed_directories", "list_directory", "read_text_file", "write_file", "read_media_file"},
	"memory":     {"create_entities", "read_graph"},
	"sequential": {"sequentialthinking"},
}

// notOffered are tools that server-everything has only for a client that offers
// sampling, roots or elicitation by URL.
var notOffered = []string{"trigger-sampling-request", "get-roots-list", "trigger-url-elicitation"}

func newReference(t *testing.T) *reference {
	t.Helper()
	peers := npmpeers.Need(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	token := filepath.Join(dir, "token")
	must(t, os.WriteFile(token, []byte(canary), 0o600))
	r := &reference{served: filepath.Join(dir, "served")}
	var servers []catalogue.Server
	for name, tools := range referenceTools {
		for _, over := range []string{"stdio", "http"} {
			server := catalogue.Server{Namespace: name + "-" + over, Transport: over, Tools: tools}
			module, env, args := name, map[string]string{}, []string(nil)
			switch name {
			case "everything":
				args = []string{"stdio"}
				// It does nothing before it asks.
				server.ToolOptions = map[string]catalogue.ToolOptions{"trigger-elicitation-request": {Idempotent: true}}
			case "sequential":
				module = "sequential-thinking"
			case "memory":
				env["MEMORY_FILE_PATH"] = filepath.Join(dir, over+".jsonl")
			case "filesystem":
				folder := r.folder(over)
				fill(t, folder)
				args = []string{folder}
			}
			if over == "stdio" {
				server.Command, server.Environment = peers.Server(module, args...), env
				server.Credential = &catalogue.Credential{Source: catalogue.SourceFile, Path: token, Env: "API_TOKEN"}
			} else {
				var whole []string
				for k, v := range env {
					whole = append(whole, k+"="+v)
				}
				server.URL = peers.Serve(t, whole, module, args...)
				server.Egress = &catalogue.Egress{AllowCIDRs: []string{"127.0.0.1/32"}}
			}
			servers = append(servers, server)
		}
	}
	r.session = newSession(t, servers...)
	for _, s := range servers {
		for _, tool := range s.Tools {
			r.grants.allow(t, subject, authz.ToolID(s.Namespace+"."+tool))
		}
	}
	return r
}

func (r *reference) folder(over string) string {
	if over == "http" {
		return r.served + "-http"
	}
	return r.served
}

// fill makes a folder and, beside it, what must not be read.
func fill(t *testing.T, folder string) {
	t.Helper()
	must(t, os.MkdirAll(folder+"-evil", 0o700))
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder+"-evil", "secret.txt"), []byte("out of reach"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("the word is heron\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "bytes.txt"), []byte("a\xffb"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "huge.txt"), []byte(strings.Repeat("0123456789abcdef", 2<<20/16)), 0o600))
	must(t, os.Symlink(filepath.Join(folder+"-evil", "secret.txt"), filepath.Join(folder, "link.txt")))
}

// TestTheReferenceServers drives them as agents do. What is known of each is in
// its part; each part is true over both transports.
func TestTheReferenceServers(t *testing.T) {
	r := newReference(t)
	r.described(t)
	for _, over := range []string{"stdio", "http"} {
		for name, part := range map[string]func(*testing.T, string, string){
			"everything": r.everything, "filesystem": r.filesystem, "memory": r.memory, "sequential": r.sequential,
		} {
			t.Run(name+" over "+over, func(t *testing.T) { part(t, name+"-"+over+".", over) })
		}
	}
	if strings.Contains(r.log.String(), canary) {
		t.Error("the credential is in the log")
	}
}

// says calls a tool whose first text has to hold want.
func (r *reference) says(t *testing.T, tool, args, want string) *toolbrokerv1.CallToolResponse {
	t.Helper()
	res, err := r.call(t, tool, args)
	if got := textOf(res, err); !strings.Contains(got, want) || res.GetIsError() {
		t.Errorf("%s %s: %.300q (error %v), want %q", tool, args, got, res.GetIsError(), want)
	}
	return res
}

// fails calls a tool that has to say, as a result, that it failed.
func (r *reference) fails(t *testing.T, tool, args, want string) {
	t.Helper()
	res, err := r.call(t, tool, args)
	if got := textOf(res, err); !res.GetIsError() || !strings.Contains(got, want) {
		t.Errorf("%s %s: %.300q (error %v), want an error with %q", tool, args, got, res.GetIsError(), want)
	}
}

func object(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (r *reference) everything(t *testing.T, ns, over string) {
	r.says(t, ns+"echo", `{"message":"heron"}`, "Echo: heron")
	r.says(t, ns+"get-sum", `{"a":2,"b":40}`, "42")
	if res := r.says(t, ns+"get-structured-content", `{"location":"New York"}`, "temperature"); !strings.Contains(string(res.GetResult()), `"structuredContent":{`) {
		t.Errorf("structured content: %s", res.GetResult())
	}
	if res := r.says(t, ns+"get-tiny-image", `{}`, ""); !strings.Contains(string(res.GetResult()), `"type":"image","mime_type":"image/png","size":`) {
		t.Errorf("image: %.300s", res.GetResult())
	}
	if res := r.says(t, ns+"get-resource-links", `{"count":2}`, ""); !strings.Contains(string(res.GetResult()), `"type":"resource_link"`) {
		t.Errorf("links: %.300s", res.GetResult())
	}

	// It shows its whole environment, which is what the catalogue gave it.
	res, err := r.call(t, ns+"get-env", `{}`)
	var env map[string]string
	if jerr := json.Unmarshal([]byte(textOf(res, err)), &env); jerr != nil {
		t.Fatalf("%s: %v", textOf(res, err), jerr)
	}
	switch {
	case over == "stdio" && (len(env) != 1 || env["API_TOKEN"] != "[redacted]"):
		t.Errorf("the environment of the server: %v", env)
	case over == "http" && len(env) != 1: // its port, which is the test's
		t.Errorf("the environment of the server: %v", env)
	}

	// Neither roots nor sampling nor elicitation by URL are offered to it.
	for _, tool := range notOffered {
		_, err := r.call(t, ns+tool, `{}`)
		wantCode(t, err, fault.ToolUnavailable)
	}

	// It asks the user in the midst of a call, for one of each kind.
	q := r.askWith(t, ns+"trigger-elicitation-request", `{}`)
	if len(q.asks.Fields) != 13 || q.asks.Prompt != "Please provide inputs for the following fields:" {
		t.Errorf("asked: %+v", q.asks)
	}
	res, err = q.bring(t.Context(), q.decide(t, form(`{"name":"Ada","check":true,"email":"ada@example.com","untitledMultipleSelectEnum":["Piano"]}`)))
	if got := string(res.GetResult()); err != nil || res.GetIsError() || !strings.Contains(got, "- Name: Ada") || !strings.Contains(got, "- Favorite Integer: 42") {
		t.Errorf("answered: %s %v", got, err)
	}

	// A cancelled call ends here at once; the server works on, and the next call is
	// answered all the same.
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := r.stand.Envelope()
	ended := make(chan error, 1)
	go func() {
		_, err := r.callAs(ctx, cancelled, ns+"trigger-long-running-operation", `{"duration":120,"steps":2400}`)
		ended <- err
	}()
	wait(t, func() bool { return r.dispatched(t, cancelled.IdempotencyKey) })
	cancel()
	wantCode(t, <-ended, fault.Cancelled)
	r.says(t, ns+"echo", `{"message":"still here"}`, "still here")
	r.says(t, ns+"trigger-long-running-operation", `{"duration":0.2,"steps":4}`, "completed")
}

// dispatched says whether the call of a key has left.
func (r *reference) dispatched(t *testing.T, key string) bool {
	t.Helper()
	for _, row := range r.stand.Rows(t) {
		if row.Key == key {
			return true
		}
	}
	return false
}

func (r *reference) filesystem(t *testing.T, ns, over string) {
	folder := r.folder(over)
	in := func(name string) string { return object(map[string]any{"path": filepath.Join(folder, name)}) }
	// A client that offers roots replaces the folders of the command line.
	r.says(t, ns+"list_allowed_directories", `{}`, folder)
	r.says(t, ns+"list_directory", in(""), "[FILE] notes.txt")
	r.says(t, ns+"read_text_file", in("notes.txt"), "the word is heron")
	r.says(t, ns+"read_text_file", in("bytes.txt"), "a�b")
	// A symbolic link out (CVE-2025-53109), a folder whose name only begins alike
	// (CVE-2025-53110) and a path that climbs out (CVE-2026-4307).
	for _, name := range []string{"link.txt", "../" + filepath.Base(folder) + "-evil/secret.txt", "../../../etc/hostname"} {
		r.fails(t, ns+"read_text_file", in(name), "Access denied")
	}
	r.fails(t, ns+"read_text_file", in("missing.txt"), "ENOENT")
	// It has no limit of its own: 2 MiB come as 4.2 MB, text and the same again.
	res := r.says(t, ns+"read_text_file", in("huge.txt"), "0123456789abcdef")
	if !res.GetTruncated() || len(res.GetResult()) > 64<<10 {
		t.Errorf("%d bytes, truncated %v", len(res.GetResult()), res.GetTruncated())
	}
	// Under one key a file is written once.
	e := r.stand.Envelope()
	write := object(map[string]any{"path": filepath.Join(folder, "new.txt"), "content": "first"})
	for n := range 2 {
		res, err := r.callAs(t.Context(), e, ns+"write_file", write)
		if err != nil || res.GetReplayed() != (n == 1) {
			t.Errorf("write %d: %v %v", n, res, err)
		}
		must(t, os.WriteFile(filepath.Join(folder, "new.txt"), []byte("changed since"), 0o600))
	}
	r.says(t, ns+"read_text_file", in("new.txt"), "changed since")
	// What the schema does not take is not sent.
	_, err := r.call(t, ns+"write_file", `{"path":5,"content":"x"}`)
	wantCode(t, err, fault.ToolArgumentsInvalid)
}

func (r *reference) memory(t *testing.T, ns, _ string) {
	r.says(t, ns+"create_entities", `{"entities":[{"name":"heron","entityType":"bird","observations":["stands still"]}]}`, "heron")
	r.says(t, ns+"read_graph", `{}`, "stands still")
}

func (r *reference) sequential(t *testing.T, ns, _ string) {
	thought := func(n int) string {
		return fmt.Sprintf(`{"thought":"step %d","nextThoughtNeeded":true,"thoughtNumber":%d,"totalThoughts":3}`, n, n)
	}
	r.says(t, ns+"sequentialthinking", thought(1), `"thoughtHistoryLength": 1`)
	r.says(t, ns+"sequentialthinking", thought(2), `"thoughtHistoryLength": 2`)
}

// described: every tool is described so that a model can be offered it.
func (r *reference) described(t *testing.T) {
	t.Helper()
	for name, tools := range referenceTools {
		for _, over := range []string{"stdio", "http"} {
			want := len(tools)
			if name == "everything" {
				want -= len(notOffered)
			}
			var found []catalogue.Descriptor
			wait(t, func() bool { // some are announced later than others
				found, _ = r.service.catalogue.List([]string{name + "-" + over + ".*"})
				return len(found) == want
			})
			for _, d := range found {
				if len(d.OfferedName) > 40 || strings.Trim(d.OfferedName, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || !json.Valid(d.InputSchema) {
					t.Errorf("%s: %q %s", d.ID, d.OfferedName, d.InputSchema)
				}
			}
		}
	}
}
