package catalogue_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/toolbroker/internal/catalogue"
)

func load(t *testing.T, text string) (catalogue.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catalogue.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return catalogue.Load(path)
}

const minimal = `{"namespace":"fs","transport":"stdio","command":["/bin/server"],"tools":["read"]}`

func TestLoad(t *testing.T) {
	t.Parallel()
	c, err := load(t, `{"servers":[`+minimal+`,
		{"namespace":"gh","transport":"stdio","command":["/usr/bin/node","/srv/gh.js"],"environment":{"PATH":"/usr/bin"},"tools":["get_me","issues/list"],
		 "read_only":true,"tool_options":{"get_me":{"idempotent":true}},"timeout":"90s","credential":{"source":"file","path":"/run/gh","env":"GH_TOKEN"}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 2 || c.Servers[1].Credential.Env != "GH_TOKEN" || !c.Servers[1].ToolOptions["get_me"].Idempotent {
		t.Errorf("%+v", c)
	}
	if _, err := load(t, `{"servers":[]}`); err != nil {
		t.Errorf("no servers at all: %v", err)
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	with := func(change ...string) string {
		return `{"servers":[` + strings.NewReplacer(change...).Replace(minimal) + `]}`
	}
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":              {`servers:`, "not valid JSON"},
		"unknown field":        {`{"servers":[],"server":[]}`, "/server"},
		"misspelt option":      {with(`"fs"`, `"fs","readonly":true`), "/servers/0/readonly"},
		"field in a case":      {with(`"tools"`, `"Tools"`), "/servers/0/Tools"},
		"no tools":             {with(`,"tools":["read"]`, ``), "/servers/0/tools"},
		"empty tools":          {with(`["read"]`, `[]`), "tools: name 1"},
		"tool twice":           {with(`["read"]`, `["read","read"]`), "tools:"},
		"tool with a blank":    {with(`"read"`, `"re ad"`), "tools:"},
		"all tools":            {with(`"read"`, `"*"`), "tools:"},
		"namespace":            {with(`"fs"`, `"Fs"`), "namespace:"},
		"namespace with a dot": {with(`"fs"`, `"f.s"`), "namespace:"},
		"namespace twice":      {`{"servers":[` + minimal + `,` + minimal + `]}`, "twice"},
		"transport":            {with(`"stdio"`, `"http"`), "only \"stdio\""},
		"no command":           {with(`["/bin/server"]`, `[]`), "command:"},
		"relative command":     {with(`/bin/server`, `server`), "command:"},
		"options of no tool":   {with(`"fs"`, `"fs","tool_options":{"write":{}}`), "tool_options:"},
		"approval":             {with(`"fs"`, `"fs","approval":"sometimes"`), "approval:"},
		"approval of a tool":   {with(`"fs"`, `"fs","tool_options":{"read":{"approval":"sometimes"}}`), "approval:"},
		"timeout":              {with(`"fs"`, `"fs","timeout":"soon"`), "timeout:"},
		"timeout too long":     {with(`"fs"`, `"fs","timeout":"1h"`), "timeout:"},
		"timeout negative":     {with(`"fs"`, `"fs","timeout":"-1s"`), "timeout:"},
		"environment":          {with(`"fs"`, `"fs","environment":{"A=B":"c"}`), "environment:"},
		"credential source":    {with(`"fs"`, `"fs","credential":{"source":"env","path":"/a","env":"A"}`), "credential.source"},
		"credential path":      {with(`"fs"`, `"fs","credential":{"source":"file","path":"a","env":"A"}`), "credential.path"},
		"credential variable":  {with(`"fs"`, `"fs","credential":{"source":"file","path":"/a","env":"A B"}`), "credential.env"},
		"variable set twice":   {with(`"fs"`, `"fs","environment":{"A":""},"credential":{"source":"file","path":"/a","env":"A"}`), "credential.env"},
	} {
		if _, err := load(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := catalogue.Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
