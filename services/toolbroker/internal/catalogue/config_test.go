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

const overHTTP = `{"namespace":"gh","transport":"http","url":"https://mcp.example/mcp","tools":["read"]}`

func TestLoadHTTP(t *testing.T) {
	t.Parallel()
	c, err := load(t, `{"servers":[`+overHTTP+`,
		{"namespace":"in","transport":"http","url":"http://10.1.2.3:8080/mcp","tools":["read"],"egress":{"allow_cidrs":["10.1.0.0/16"]},"risk":"high",
		 "limits":{"concurrency":4,"per_second":2.5,"burst":5},"max_result_bytes":4096,"tool_options":{"read":{"timeout":"5s","risk":"low","max_result_bytes":2048}},
		 "credential":{"source":"oauth2_client_credentials","token_url":"https://id.example/token","client_id":"broker","client_secret_file":"/run/secret","scopes":["a","b:c"],"resource":"https://mcp.example/"}},
		{"namespace":"cmd","transport":"http","url":"https://mcp.example","tools":["read"],"credential":{"source":"command","command":["/usr/bin/token","x"],"header":"X-Api-Key"}}],
		"builtin":{"http_fetch":{"hosts":["docs.example"]}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 3 || c.Servers[1].Limits.Burst != 5 || c.Builtin.HTTPFetch.Hosts[0] != "docs.example" {
		t.Errorf("%+v", c)
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	with := func(change ...string) string {
		return `{"servers":[` + strings.NewReplacer(change...).Replace(minimal) + `]}`
	}
	http := func(change ...string) string {
		return `{"servers":[` + strings.NewReplacer(change...).Replace(overHTTP) + `]}`
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
		"transport":            {with(`"stdio"`, `"sse"`), "transport:"},
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
		"namespace builtin":    {with(`"fs"`, `"builtin"`), "is taken"},
		"risk":                 {with(`"fs"`, `"fs","risk":"none"`), "risk:"},
		"result too small":     {with(`"fs"`, `"fs","max_result_bytes":5`), "max_result_bytes:"},
		"timeout of a tool":    {with(`"fs"`, `"fs","tool_options":{"read":{"timeout":"2h"}}`), "timeout:"},
		"concurrency":          {with(`"fs"`, `"fs","limits":{"concurrency":-1}`), "limits.concurrency"},
		"burst without a rate": {with(`"fs"`, `"fs","limits":{"burst":3}`), "limits.burst"},
		"url of stdio":         {with(`"fs"`, `"fs","url":"https://a"`), "url, egress:"},
		"oauth of stdio":       {with(`"fs"`, `"fs","credential":{"source":"oauth2_client_credentials","token_url":"https://a","client_id":"b","client_secret_file":"/c","env":"A"}`), "expire"},
		"header of stdio":      {with(`"fs"`, `"fs","credential":{"source":"file","path":"/a","env":"A","header":"B"}`), "credential.header"},
		"no url":               {http(`https://mcp.example/mcp`, ``), "url:"},
		"url with a password":  {http(`https://mcp`, `https://u:p@mcp`), "url:"},
		"url without TLS":      {http(`https://`, `http://`), "without TLS"},
		"command of http":      {http(`"gh"`, `"gh","command":["/bin/a"]`), "command, environment, run_as"},
		"user of http":         {http(`"gh"`, `"gh","run_as":61001`), "command, environment, run_as"},
		"one user for two":     {`{"servers":[{"namespace":"a","transport":"stdio","command":["/bin/a"],"tools":["t"],"run_as":61001},{"namespace":"b","transport":"stdio","command":["/bin/a"],"tools":["t"],"run_as":61001}]}`, "of one server alone"},
		"no user":              {with(`"fs"`, `"fs","run_as":4294967295`), "run_as:"},
		"relative folder":      {with(`"fs"`, `"fs","read_folders":["a"]`), "read_folders"},
		"everything":           {with(`"fs"`, `"fs","write_folders":["/"]`), "write_folders"},
		"folder with dots":     {with(`"fs"`, `"fs","write_folders":["/a/../b"]`), "write_folders"},
		"network of http":      {http(`"gh"`, `"gh","network":true`), "command, environment, run_as"},
		"every address":        {http(`"gh"`, `"gh","egress":{"allow_cidrs":["0.0.0.0/0"]}`), "opens nothing"},
		"no range":             {http(`"gh"`, `"gh","egress":{"allow_cidrs":["10.0.0.1/8"]}`), "allow_cidrs"},
		"relative ca":          {http(`"gh"`, `"gh","egress":{"ca_file":"a.pem"}`), "ca_file"},
		"exchange of stdio":    {with(`"fs"`, `"fs","credential":{"source":"token_exchange","token_url":"https://a","client_id":"b","client_secret_file":"/c","env":"A"}`), "expire"},
		"exchange without":     {http(`"gh"`, `"gh","credential":{"source":"token_exchange"}`), "token_url"},
		"audience of oauth":    {http(`"gh"`, `"gh","credential":{"source":"oauth2_client_credentials","token_url":"https://a","client_id":"b","client_secret_file":"/c","audience":"d"}`), "fields of the source"},
		"listing without":      {http(`"gh"`, `"gh","listing_credential":{"source":"file","path":"/a"}`), "listing_credential: only"},
		"listing by exchange":  {http(`"gh"`, `"gh","credential":{"source":"token_exchange","token_url":"https://a","client_id":"b","client_secret_file":"/c"},"listing_credential":{"source":"token_exchange","token_url":"https://a","client_id":"b","client_secret_file":"/c"}`), "listing_credential: only"},
		"listing with a path":  {http(`"gh"`, `"gh","credential":{"source":"token_exchange","token_url":"https://a","client_id":"b","client_secret_file":"/c"},"listing_credential":{"source":"file","path":"a"}`), "listing_credential.path"},
		"variable of http":     {http(`"gh"`, `"gh","credential":{"source":"file","path":"/a","env":"A"}`), "credential.env"},
		"header of HTTP":       {http(`"gh"`, `"gh","credential":{"source":"file","path":"/a","header":"host"}`), "credential.header"},
		"header of MCP":        {http(`"gh"`, `"gh","credential":{"source":"file","path":"/a","header":"mcp-session-id"}`), "credential.header"},
		"header with a break":  {http(`"gh"`, `"gh","credential":{"source":"file","path":"/a","header":"A\r\nB"}`), "credential.header"},
		"scheme":               {http(`"gh"`, `"gh","credential":{"source":"file","path":"/a","scheme":"a b"}`), "credential.scheme"},
		"two sources":          {http(`"gh"`, `"gh","credential":{"source":"file","path":"/a","client_id":"b"}`), "fields of the source"},
		"token without TLS":    {http(`"gh"`, `"gh","credential":{"source":"oauth2_client_credentials","token_url":"http://a","client_id":"b","client_secret_file":"/c"}`), "token_url"},
		"relative program":     {http(`"gh"`, `"gh","credential":{"source":"command","command":["token"]}`), "credential.command"},
		"fetch from nowhere":   {`{"servers":[],"builtin":{"http_fetch":{"hosts":[]}}}`, "hosts: name 1"},
		"fetch from all":       {`{"servers":[],"builtin":{"http_fetch":{"hosts":["*.example"]}}}`, "hosts:"},
		"fetch in capitals":    {`{"servers":[],"builtin":{"http_fetch":{"hosts":["A.example"]}}}`, "hosts:"},
	} {
		if _, err := load(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := catalogue.Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
