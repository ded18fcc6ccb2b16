package process

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/isolation"
)

func TestProfiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profiles.json")
	if err := os.WriteFile(file, []byte(`{"profiles":[
		{"name":"plain","harness":"native"},
		{"name":"agents","harness":"acp","harness_config":"/etc/agents/opencode.json","warm":3,
		 "program":{"read_only_paths":["/usr","/lib","/opt/agents","/etc/ssl"],"limits":{"pids":100}},
		 "limits":{"memory_mib":1024,"pids":256,"cpus":0.5,"workspace_mib":256,"lifetime_seconds":60}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadProfiles(file)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := (Limits{MemoryMiB: 512, PIDs: 512, CPUs: 2, WorkspaceMiB: 128, LifetimeSeconds: 86400}); got[0].Limits != want || got[0].Program != nil || got[0].Warm != 0 {
		t.Errorf("the defaults are %+v, want %+v", got[0].Limits, want)
	}
	if a := got[1]; a.Warm != 3 || a.Program.Limits.PIDs != 100 || a.Limits.lifetime() != time.Minute || a.HarnessConfig == "" {
		t.Errorf("%+v", a)
	}
	if d := DefaultProfiles(7); len(d) != 1 || d[0].Warm != 7 || d[0].Name != DefaultProfile || d[0].validate() != nil {
		t.Errorf("the built-in one: %+v", d)
	}
}

func TestProfilesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ profile, says string }{
		"no name":                {`{"harness":"native"}`, "name"},
		"odd name":               {`{"name":"a b","harness":"native"}`, "name"},
		"no harness":             {`{"name":"a"}`, "harness"},
		"unknown field":          {`{"name":"a","harness":"native","image":"x"}`, "image"},
		"relative config":        {`{"name":"a","harness":"native","harness_config":"x.json"}`, "harness_config"},
		"config that climbs":     {`{"name":"a","harness":"native","harness_config":"/x/../y"}`, "harness_config"},
		"little memory":          {`{"name":"a","harness":"native","limits":{"memory_mib":8}}`, "memory_mib"},
		"negative memory":        {`{"name":"a","harness":"native","limits":{"memory_mib":-8}}`, "memory_mib"},
		"few processes":          {`{"name":"a","harness":"native","limits":{"pids":2}}`, "pids"},
		"no processor":           {`{"name":"a","harness":"native","limits":{"cpus":-1}}`, "cpus"},
		"more files than room":   {`{"name":"a","harness":"native","limits":{"memory_mib":64,"workspace_mib":64}}`, "workspace_mib"},
		"for ever":               {`{"name":"a","harness":"native","limits":{"lifetime_seconds":99999999}}`, "lifetime_seconds"},
		"negative warm":          {`{"name":"a","harness":"native","warm":-1}`, "warm"},
		"program takes all":      {`{"name":"a","harness":"acp","program":{"limits":{"pids":465}}}`, "program.limits.pids"},
		"program takes memory":   {`{"name":"a","harness":"acp","program":{"limits":{"memory_mib":512}}}`, "program.limits.memory_mib"},
		"program gets no memory": {`{"name":"a","harness":"acp","limits":{"memory_mib":64,"workspace_mib":8},"program":{}}`, "program.limits.memory_mib"},
		"the root":               {`{"name":"a","harness":"acp","program":{"read_only_paths":["/"]}}`, "read_only_paths"},
		"all of /etc":            {`{"name":"a","harness":"acp","program":{"read_only_paths":["/etc"]}}`, "read_only_paths"},
		"the host's processes":   {`{"name":"a","harness":"acp","program":{"read_only_paths":["/proc/1"]}}`, "read_only_paths"},
		"the host's sockets":     {`{"name":"a","harness":"acp","program":{"read_only_paths":["/run/docker.sock"]}}`, "read_only_paths"},
		"the workspace":          {`{"name":"a","harness":"acp","program":{"read_only_paths":["/workspace/x"]}}`, "read_only_paths"},
		"a path that climbs":     {`{"name":"a","harness":"acp","program":{"read_only_paths":["/usr/../proc"]}}`, "read_only_paths"},
		"twice":                  {`{"name":"a","harness":"native"},{"name":"a","harness":"acp"}`, "twice"},
		"none":                   {``, "profiles"},
	} {
		if p, err := ParseProfiles([]byte(`{"profiles":[` + c.profile + `]}`)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if _, err := LoadProfiles("/nonexistent/profiles.json"); err == nil {
		t.Error("read what is not there")
	}
}

func FuzzParseProfiles(f *testing.F) {
	f.Add(`{"profiles":[{"name":"a","harness":"acp","program":{"read_only_paths":["/usr"]},"limits":{"cpus":0.5}}]}`)
	f.Add(`{"profiles":[{"name":"a","harness":"native","limits":{"cpus":1e300,"memory_mib":9223372036854775807}}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		profiles, err := ParseProfiles([]byte(raw))
		if err != nil {
			return
		}
		for _, p := range profiles {
			// What was taken can be made: it has a bound for everything.
			l := p.Limits
			if l.MemoryMiB <= 0 || l.PIDs <= 0 || l.CPUs <= 0 || l.WorkspaceMiB <= 0 || l.lifetime() <= 0 {
				t.Errorf("%+v", p)
			}
			s := (&Provider{cfg: Config{WorkerPath: "/w", RunnerPath: "/r", Sockets: "/s"}}).spec(&p, inside(), "/x", nil)
			if err := s.Validate(); err != nil {
				t.Errorf("%s became a sandbox that cannot be: %v", raw, err)
			}
		}
	})
}

// A hosted program is in a world of its own: it shares the workspace and the
// runner's folder with the worker, and has neither a service's socket nor the
// Workload API.
func TestTheWorldOfAProgram(t *testing.T) {
	p := &Provider{cfg: Config{WorkerPath: "/opt/worker", RunnerPath: "/opt/runner", Sockets: "/s", TrustDomain: td}, bounded: true}
	profile := Profile{Name: "a", Harness: "acp", HarnessConfig: "/etc/a.json", Program: &ProgramWorld{ReadOnlyPaths: []string{"/usr"}}}.withDefaults()
	s := p.spec(&profile, inside(), "/run/id/x.sock", []string{"/sys/fs/cgroup/pids/x/pids.events"})
	if err := s.Validate(); err != nil || s.Nested == nil {
		t.Fatalf("%+v, %v", s, err)
	}
	var outer []string
	for _, m := range s.Nested.Mounts {
		if m.FromOuter {
			outer = append(outer, m.Source)
		}
	}
	if want := []string{runnerInside, workspaceInside}; !slices.Equal(outer, want) {
		t.Errorf("it takes %v from the worker's world, want %v", outer, want)
	}
	raw, err := json.Marshal(s.Nested)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"/s/", "x.sock", "workload", "capability", "a.json", "/opt/worker"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the program's world has %q: %s", secret, raw)
		}
	}
	args := strings.Join(s.Program.Args, " ")
	for _, want := range []string{"--harness acp", "--harness-config /cofferdam/harness.json", "--runner unix:///run/runner/runner.sock"} {
		if !strings.Contains(args, want) {
			t.Errorf("the worker is not told %q: %s", want, args)
		}
	}
	i := slices.IndexFunc(s.Mounts, func(m isolation.Mount) bool { return m.Target == runnerInside })
	if i < 0 || s.Mounts[i].Tmpfs == nil || s.Mounts[i].Tmpfs.Mode&0o007 != 0 || s.Mounts[i].Tmpfs.UID != isolation.RunnerID {
		t.Errorf("the runner's folder: %+v", s.Mounts)
	}
	if s.Nested.Limits.Processes != 0 || s.Limits.Processes != 0 {
		t.Errorf("limits %+v and %+v", s.Limits, s.Nested.Limits)
	}
	if !slices.ContainsFunc(s.Nested.Mounts, func(m isolation.Mount) bool { return m.Target == "/run/limits/pids.events" && m.ReadOnly }) {
		t.Errorf("its counters: %+v", s.Nested.Mounts)
	}
	p.bounded = false // nobody counts processes but setrlimit
	if s := p.spec(&profile, inside(), "/x", nil); s.Limits.Processes != 512 || s.Nested.Limits.Processes != 384+runnerPIDs {
		t.Errorf("without a group: %+v", s.Limits)
	}
}

// Where the machine has no mount namespaces, what would be at fixed paths is found
// where it stands.
func TestWithoutAMountNamespacePathsAreTheHosts(t *testing.T) {
	p := &Provider{cfg: Config{WorkerPath: "/opt/worker", Sockets: "/s", TrustDomain: td}, without: []isolation.Layer{isolation.MountNamespace}}
	profile := DefaultProfiles(0)[0]
	s := p.spec(&profile, paths{worker: "/opt/worker", workspace: "/data/workspace-X", workload: "/run/id/x.sock"}, "/run/id/x.sock", nil)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	args := strings.Join(s.Program.Args, " ")
	if s.Program.Path != "/opt/worker" || p.Address("toolbroker") != "unix:///s/toolbroker.sock" ||
		!strings.Contains(args, "--workload-api unix:///run/id/x.sock") || !strings.Contains(args, "--workspace /data/workspace-X") {
		t.Errorf("%+v", s.Program)
	}
	if !slices.Equal(s.Access.ReadWrite, []string{"/data/workspace-X"}) || !slices.Equal(s.Without, p.without) {
		t.Errorf("%+v without %v", s.Access, s.Without)
	}
}
