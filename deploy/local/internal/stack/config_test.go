package stack

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/deploy/local/internal/datadir"
)

func TestWhatIsWrongWithAConfiguration(t *testing.T) {
	bin := t.TempDir()
	for _, name := range programs() {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // "" is nothing
	}{
		{"the defaults", func(*Config) {}, ""},
		{"localhost", func(c *Config) { c.Listen = "localhost:0" }, ""},
		{"IPv6", func(c *Config) { c.Listen = "[::1]:0" }, ""},
		{"a model", func(c *Config) { c.Model = Model{BaseURL: "https://api.example.com/v1", Name: "m"} }, ""},
		{"every interface", func(c *Config) { c.Listen = "0.0.0.0:80" }, "--listen"},
		{"no host", func(c *Config) { c.OperatorListen = ":80" }, "--operator-listen"},
		{"another host", func(c *Config) { c.Listen = "example.com:80" }, "--listen"},
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" }, "--listen"},
		{"a model without a name", func(c *Config) { c.Model.BaseURL = "https://x/v1" }, "--model:"},
		{"a model without an endpoint", func(c *Config) { c.Model.Name = "m" }, "--model-base-url"},
		{"a key in the URL", func(c *Config) {
			c.Model = Model{BaseURL: (&url.URL{Scheme: "https", Host: "x", User: url.UserPassword("u", "hush")}).String(), Name: "m"}
		}, "--model-base-url"},
		{"a key file that is not there", func(c *Config) {
			c.Model = Model{BaseURL: "https://x/v1", Name: "m", KeyFile: "/nowhere/key"}
		}, "--model-key-file"},
		{"agents that are not there", func(c *Config) { c.Agents = "/nowhere/agents" }, "--agents"},
		{"servers that are not there", func(c *Config) { c.MCPConfig = "/nowhere/mcp" }, "--mcp-config"},
		{"many sandboxes, some of them warm", func(c *Config) { c.MaxSandboxes, c.Warm = MostSandboxes, 100 }, ""},
		{"too many sandboxes", func(c *Config) { c.MaxSandboxes = MostSandboxes + 1 }, "--max-sandboxes"},
		{"fewer sandboxes than none", func(c *Config) { c.MaxSandboxes = -1 }, "--max-sandboxes"},
		{"more warm than may live", func(c *Config) { c.Warm = DefaultMaxSandboxes + 1 }, "--warm"},
		{"fewer warm than none", func(c *Config) { c.Warm = -1 }, "--warm"},
		{"sandboxes that wait for a second", func(c *Config) { c.IdleAfter = time.Second }, ""},
		{"sandboxes that hardly wait", func(c *Config) { c.IdleAfter = 999 * time.Millisecond }, "--idle-after"},
		{"sandboxes that wait for less than no time", func(c *Config) { c.IdleAfter = -time.Second }, "--idle-after"},
		{"profiles that are not there", func(c *Config) { c.SandboxProfiles = "/nowhere/profiles" }, "--sandbox-profiles"},
		{"warm twice", func(c *Config) { c.Warm, c.SandboxProfiles = 1, bin }, "--warm"},
		{"a database", func(c *Config) { c.Store = "mongodb://user@host/database" }, ""},
		{"a password in an address", func(c *Config) {
			c.Store = (&url.URL{Scheme: "mongodb", Host: "x", User: url.UserPassword("u", "hush")}).String()
		}, "--store: leave the password out"},
		{"a database that is a file", func(c *Config) { c.Store = "records.db" }, "--store: mongodb://"},
		{"a password for files", func(c *Config) { c.StorePasswordFile = bin }, "--store-password-file"},
		{"a folder for contents", func(c *Config) { c.BlobURL, c.BlobCredentialsFile = "file:///tmp", bin }, "--blob-url"},
		{"a bucket without credentials", func(c *Config) { c.BlobURL = "s3://b" }, "--blob-credentials-file"},
		{"credentials for nothing", func(c *Config) { c.BlobCredentialsFile = bin }, "--blob-url"},
		{"a collector with a password", func(c *Config) { c.OTLPEndpoint = "http://a:b@127.0.0.1:4318" }, "--otlp-endpoint"},
		{"credentials that are not there", func(c *Config) { c.BlobURL, c.BlobCredentialsFile = "s3://b", "/nowhere/credentials" }, "--blob-credentials-file"},
		{"a password that is not there", func(c *Config) { c.Store, c.StorePasswordFile = "mongodb://u@x", "/nowhere/password" }, "--store-password-file"},
		{"no programs", func(c *Config) { c.BinDir = t.TempDir() }, "make build"},
	} {
		cfg := Config{BinDir: bin, DataDir: "x"}
		c.change(&cfg)
		_, err := cfg.withDefaults()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: the error tells the key", c.name)
		}
	}
}

// written gives the configuration files of the services as they are read back.
func written(t *testing.T, cfg Config) (catalogue, map[string]map[string]any, error) {
	t.Helper()
	d, err := datadir.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg.BinDir = "/bin-dir"
	c, err := writeCatalogue(d, cfg)
	if err != nil {
		return c, nil, err
	}
	out := map[string]map[string]any{}
	for _, name := range []string{"agents", "aliases", "catalogue"} {
		raw, err := os.ReadFile(d.Config(name))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		out[name] = doc
	}
	return c, out, nil
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// text is a document as JSON, to look something up in.
func text(t *testing.T, doc map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTheDemoAgentHasTheSampleTools(t *testing.T) {
	c, docs, err := written(t, Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"fs.list_directory", "fs.read_text_file", "builtin.delegate"}
	if !slices.Equal(c.tools, want) || !slices.Equal(c.agents, []string{DemoAgent}) {
		t.Errorf("%+v", c)
	}
	for doc, part := range map[string]string{
		"agents":    `"tools":["fs.list_directory","fs.read_text_file"]`,
		"catalogue": `{"builtin":{"delegate":{}},"servers":[{"command":["/bin-dir/cofferdam-mcp-files","--root","`,
		"aliases":   `{"aliases":{"demo":{"kind":"demo"}}}`,
	} {
		if got := text(t, docs[doc]); !strings.Contains(got, part) {
			t.Errorf("%s: %s lacks %s", doc, got, part)
		}
	}
}

func TestFurtherServersAreKeptAsTheyAre(t *testing.T) {
	servers := `{"servers":[{"namespace":"git","transport":"stdio","command":["/bin/git-mcp"],"tools":["log","diff"],"credential":{"source":"file","path":"/k","env":"K"}}],"builtin":{"http_fetch":{"hosts":["example.org"]}}}`
	c, docs, err := written(t, Config{MCPConfig: file(t, servers)})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"fs.list_directory", "fs.read_text_file", "git.log", "git.diff", "builtin.delegate", "builtin.http_fetch"}; !slices.Equal(c.tools, want) {
		t.Errorf("tools %v", c.tools)
	}
	if got := text(t, docs["catalogue"]); !strings.Contains(got, `"credential":{"env":"K","path":"/k","source":"file"}`) {
		t.Errorf("%s", got)
	}
	if got := text(t, docs["agents"]); !strings.Contains(got, `"git.diff","builtin.http_fetch"]`) {
		t.Errorf("the demo agent lacks the tools: %s", got)
	}
}

func TestAgentsOfTheOperatorTakeThePlaceOfTheDemoAgent(t *testing.T) {
	c, docs, err := written(t, Config{Agents: file(t, `{"agents":[{"agent_id":"b","limits":{"max_tool_calls":3}},{"agent_id":"a"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.agents, []string{"a", "b"}) || strings.Contains(text(t, docs["agents"]), DemoAgent) {
		t.Errorf("%v: %s", c.agents, text(t, docs["agents"]))
	}
	if !strings.Contains(text(t, docs["agents"]), `"max_tool_calls":3`) {
		t.Errorf("%s", text(t, docs["agents"]))
	}
}

func TestARealModelTakesThePlaceOfTheDemoModel(t *testing.T) {
	_, docs, err := written(t, Config{Model: Model{BaseURL: "https://x/v1", Name: "large", KeyFile: "/key"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, docs["aliases"]), `{"aliases":{"demo":{"base_url":"https://x/v1","key_file":"/key","kind":"openai","model":"large"}}}`; got != want {
		t.Errorf("%s", got)
	}
}

func TestFilesOfTheOperatorThatAreNone(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no JSON":       {Agents: file(t, "agents: []")},
		"no agent":      {Agents: file(t, `{"agents":[]}`)},
		"servers wrong": {MCPConfig: file(t, `{"servers":[3]}`)},
		"too large":     {MCPConfig: file(t, strings.Repeat(" ", maxConfigBytes+1))},
	} {
		if _, _, err := written(t, cfg); err == nil || !strings.HasPrefix(err.Error(), "--") {
			t.Errorf("%s: %v, want an error that names the flag", name, err)
		}
	}
}

func TestASampleFolderOfSomebodyIsLeftAlone(t *testing.T) {
	own := t.TempDir()
	if err := sample(own); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(own); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	made := filepath.Join(t.TempDir(), "sample")
	for range 2 {
		if err := sample(made); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(made, NotesFile)); err != nil || !strings.Contains(string(content), "word of the day") {
		t.Errorf("%q, %v", content, err)
	}
}

func TestOnlyTheNewestAreKept(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"c", "a", "b"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		keep int
		want string
	}{{3, "a b c"}, {2, "a b"}, {1, "b"}, {0, ""}} {
		if err := removeOldest(dir, c.keep); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if got := strings.Join(left, " "); got != c.want {
			t.Errorf("keep %d: %q, want %q", c.keep, got, c.want)
		}
	}
	if err := removeOldest(filepath.Join(dir, "nowhere"), 0); err != nil {
		t.Error(err)
	}
}

func TestNotesWaitForTheEndOfAStep(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out}
	p.note("before %d", 1)
	p.begin("a")
	p.note("two\nlines\n")
	p.end(true)
	p.begin("b")
	p.end(false)
	got := out.String()
	if !strings.HasPrefix(got, "before 1\nstarting a ... ready in 0.0s\ntwo\nlines\nstarting b ... failed\n") {
		t.Errorf("%q", got)
	}
}
