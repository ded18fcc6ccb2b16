package escape

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/stack"
)

// Agents of the stack, each with the sandbox of its name.
const (
	// honest is the agent of the neighbours: the worker's own harness, which keeps
	// to the rules.
	honest = "honest"
	// script attacks from within the worker, program as a hosted program.
	script  = "script"
	program = "program"
	// hasty is script in a sandbox that may not live for long, and brief and
	// briefProgram have runs that may not take long.
	hasty        = "hasty"
	brief        = "brief"
	briefProgram = "brief-program"
	// agentProgram is program as an agent that speaks ACP: it has two endpoints.
	agentProgram = "agent-program"
)

// Their next turns have to end in time, also on a busy machine.
const (
	// runSeconds is how long a run of the agents called brief may take.
	runSeconds = 10
	// lifeSeconds is how long a sandbox of hasty may live.
	lifeSeconds = 10
)

// python is where the interpreter of a hosted program is looked for. It has to be
// one of the system: what it needs is below /usr then, which the sandbox shows.
const python = "/usr/bin/python3"

// world is the stack that all tests share.
type world struct {
	*stack.Stack
	user, operator *apiclient.Client
	forbidden      []*forbidden.Target
	// neighbours are conversations of which each works beside one attack at a time.
	neighbours chan *talk
	// folder of everything: closed to others, and short, since sockets stand in it.
	folder string
}

var shared struct {
	sync.Mutex
	world *world
	err   error
}

// theStack gives the shared stack, which the first test that asks starts.
func theStack(t *testing.T) *world {
	t.Helper()
	needs(t)
	command := stack.Need(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.world == nil && shared.err == nil {
		shared.world, shared.err = open(command)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.world
}

func open(command string) (_ *world, err error) {
	ctx := context.Background()
	w := &world{neighbours: make(chan *talk, neighbours)}
	for range neighbours {
		w.neighbours <- w.talk(honest)
	}
	if w.folder, err = os.MkdirTemp("", "cofferdam-esc-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.forbidden, err = forbidden.Listen(ctx, w.folder); err != nil {
		return nil, err
	}
	flags := []string{"--max-sandboxes", "64", "--log-level", "debug"}
	for name, doc := range map[string]func() (any, error){"agents": agents, "sandbox-profiles": w.profiles} {
		path, err := w.write(name, doc)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "--"+name, path)
	}
	if w.Stack, err = stack.Up(ctx, command, filepath.Join(w.folder, "data"), flags...); err != nil {
		return nil, err
	}
	if w.user, err = w.Client(ctx, stack.User); err != nil {
		return nil, err
	}
	w.operator, err = w.OperatorClient(ctx, stack.Operator)
	return w, err
}

// write writes what a stack is configured with. Anybody may read it: a preset is read
// by the user of a sandbox.
func (w *world) write(name string, content func() (any, error)) (string, error) {
	doc, err := content()
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.folder, name+".json")
	return path, os.WriteFile(path, raw, 0o644)
}

func agents() (any, error) {
	agent := func(id, harness, version string, more map[string]any) map[string]any {
		a := map[string]any{
			"agent_id": id, "version": 1, "name": id, "organization": "local", "harness": harness, "adapter_version": version,
			"model_alias": "demo", "profile": id,
		}
		maps.Copy(a, more)
		return a
	}
	hostile, tools := map[string]any{"hostile": true}, []string{"fs.*"}
	short, talkative := map[string]any{"run_timeout_seconds": runSeconds}, map[string]any{"max_model_calls": 1000}
	return map[string]any{"agents": []any{
		agent(honest, "native", "1.1.0", map[string]any{"tools": tools}),
		agent(script, "scripted", "1.0.0", map[string]any{"harness_options": hostile, "tools": tools}),
		agent(hasty, "scripted", "1.0.0", map[string]any{"harness_options": hostile}),
		agent(brief, "scripted", "1.0.0", map[string]any{"harness_options": hostile, "limits": short}),
		agent(program, "stdio", "1.0.0", map[string]any{"limits": talkative}),
		agent(briefProgram, "stdio", "1.0.0", map[string]any{"limits": short}),
		agent(agentProgram, "acp", "1.0.0", map[string]any{"tools": tools, "limits": talkative}),
	}}, nil
}

// profiles are sandboxes that are small, so that their limits are soon met.
func (w *world) profiles() (any, error) {
	presets := map[string]string{}
	for harness, doc := range map[string]func() (any, error){"stdio": hostilePreset, "acp": hostileAgent} {
		path, err := w.write("program-"+harness, doc)
		if err != nil {
			return nil, err
		}
		presets[harness] = path
	}
	small := map[string]any{"memory_mib": 160, "pids": 96, "cpus": 0.5, "workspace_mib": 8}
	profile := func(name, harness string, limits map[string]any) map[string]any {
		return map[string]any{"name": name, "harness": harness, "limits": limits}
	}
	nested := func(name, harness string) map[string]any {
		p := profile(name, harness, small)
		p["harness_config"] = presets[harness]
		p["program"] = map[string]any{"read_only_paths": system(), "limits": map[string]any{"memory_mib": 64, "pids": 32}}
		return p
	}
	return map[string]any{"profiles": []any{
		profile(honest, "native", map[string]any{"memory_mib": 256}), profile(script, "scripted", small), profile(brief, "scripted", small),
		profile(hasty, "scripted", map[string]any{"memory_mib": 160, "lifetime_seconds": lifeSeconds}),
		nested(program, "stdio"), nested(briefProgram, "stdio"), nested(agentProgram, "acp"),
	}}, nil
}

// hostilePreset is the operator's configuration of the hostile program. The worker
// writes the program itself into its home.
func hostilePreset() (any, error) {
	source, err := os.ReadFile(filepath.Join("testdata", "hostile.py"))
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"command": python, "args": []string{"-u", "-B", "/home/agent/hostile.py"}, "cancel_grace": "500ms", "startup_timeout": "20s",
		"files": []any{map[string]any{"path": "hostile.py", "content": string(source)}},
	}, nil
}

// hostileAgent is the same for an agent that speaks ACP.
func hostileAgent() (any, error) {
	source, err := os.ReadFile(filepath.Join("testdata", "hostile.py"))
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"name": "hostile", "made_for": []any{map[string]any{"npm": "hostile", "version": "1.0.0"}},
		"command": python, "args": []string{"-u", "-B", "/home/agent/hostile.py", "acp", "${MODEL_BASE_URL}", "${MODEL_KEY}", "${MODEL}"},
		"home_files": map[string]any{"hostile.py": string(source)},
		"model_wire": "openai_chat", "mcp": "http", "permission": "allow", "grace_ms": 500,
		"state": map[string]any{"include": []string{"session"}, "exclude": []string{}},
	}, nil
}

// system are the folders that an interpreter of the system needs.
func system() []string {
	var there []string
	for _, path := range []string{"/usr", "/lib", "/lib64", "/bin"} {
		if _, err := os.Stat(path); err == nil {
			there = append(there, path)
		}
	}
	return there
}

// needsPython skips a test where no interpreter is, which a build machine has.
func needsPython(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath(python)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skipf("NOT TESTED: %v", err)
	}
}

func (w *world) close() error {
	var err error
	if w.Stack != nil {
		err = w.Stop(context.Background())
	}
	forbidden.Close(w.forbidden)
	return errors.Join(err, os.RemoveAll(w.folder))
}

func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.world == nil {
		return nil
	}
	return shared.world.close()
}
