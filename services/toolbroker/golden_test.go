package toolbroker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
)

// files is the real sample server on a folder with one file.
func files(t *testing.T) (server catalogue.Server, dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "served"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "served", "notes.txt"), []byte("the word is heron\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "outside.txt"), []byte("out of reach"), 0o600))
	must(t, os.Symlink("../outside.txt", filepath.Join(dir, "served", "link")))
	return catalogue.Server{
		Namespace: "fs", Transport: catalogue.TransportStdio, ReadOnly: true,
		Command: []string{program(t, "cofferdam-mcp-files"), "--root", filepath.Join(dir, "served")},
		Tools:   []string{"list_directory", "read_text_file"},
	}, dir
}

// The golden path with the real MCP server of the one-machine stack.
func TestAFileIsReadThroughTheBroker(t *testing.T) {
	server, _ := files(t)
	s := newSession(t, server)
	s.grants.allow(t, subject, authz.ToolID("fs.list_directory"), authz.ToolID("fs.read_text_file"))
	if got := textOf(s.call(t, "fs.list_directory", `{"path":"."}`)); got != "[FILE] link\n[FILE] notes.txt" {
		t.Errorf("list: %q", got)
	}
	e := s.stand.Envelope()
	for range 2 {
		res, err := s.callAs(t.Context(), e, "fs.read_text_file", `{"path":"notes.txt"}`)
		if string(res.GetResult()) != `{"content":[{"type":"text","text":"the word is heron\n"}]}` || res.GetIsError() {
			t.Errorf("read: %s %v", res.GetResult(), err)
		}
	}
	for _, path := range []string{"../outside.txt", "link", "/etc/passwd"} {
		res, err := s.call(t, "fs.read_text_file", `{"path":"`+path+`"}`)
		if err != nil || !res.GetIsError() || strings.Contains(string(res.GetResult()), "out of reach") {
			t.Errorf("%s: %s %v", path, res.GetResult(), err)
		}
	}
	_, err := s.call(t, "fs.read_text_file", `{"path":5}`)
	wantCode(t, err, fault.ToolArgumentsInvalid)
	_, err = s.call(t, "fs.read_text_file", `{"path":".","more":1}`)
	wantCode(t, err, fault.ToolArgumentsInvalid)
}

func TestListTools(t *testing.T) {
	server, _ := files(t)
	o := open(t, rpctest.NewStand(t), server)
	url := o.stand.Serve(t, o.served())
	c := o.stand.Dial(t, url, rpctest.ServiceID("toolbroker"), rpctest.ServiceID("controlplane"))
	client := toolbrokerv1connect.NewToolBrokerServiceClient(c.RPC)
	res, err := client.ListTools(t.Context(), &toolbrokerv1.ListToolsRequest{ToolIds: []string{"fs.*", "x.echo", "x.no_such_tool", "x.undisclosed"}})
	must(t, err)
	var got []string
	for _, d := range res.GetTools() {
		got = append(got, d.GetToolId()+"="+d.GetOfferedName())
		var schema map[string]any
		if err := json.Unmarshal(d.GetInputSchema(), &schema); err != nil || schema["type"] != "object" || d.GetDescription() == "" {
			t.Errorf("%v", d)
		}
		if d.GetReadOnly() != strings.HasPrefix(d.GetToolId(), "fs.") {
			t.Errorf("%s: read only %v", d.GetToolId(), d.GetReadOnly())
		}
	}
	for _, u := range res.GetUnavailable() {
		got = append(got, u.GetToolId()+"="+u.GetCode())
	}
	const want = "fs.list_directory=fs_list_directory fs.read_text_file=fs_read_text_file x.echo=x_echo x.no_such_tool=tool_unavailable x.undisclosed=tool_not_allowed"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	for _, ids := range [][]string{nil, {""}, {"a"}, make([]string, 257)} {
		_, err := client.ListTools(t.Context(), &toolbrokerv1.ListToolsRequest{ToolIds: ids})
		wantCode(t, err, fault.InvalidRequest)
	}
}
