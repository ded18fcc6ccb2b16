package agents

import (
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
)

// look has an agent's shell show what it can see of where it is, and try to reach
// listeners of the host. The words of its answers do not stand in the command, which
// agents repeat. The names in /proc/net/unix are left out: a sandbox has one network,
// and the kernel names the sockets there that the worker is connected to, which do not
// exist in the agent's files.
const look = `env; for p in /proc/[0-9]*; do echo "pro""cess $p"; tr '\0' ' ' <$p/cmdline; tr '\0' '\n' <$p/environ; ls $p/cwd/ $p/root/run $p/fd; done 2>&1 | tail -c 6000; ` +
	`cat /proc/1/environ /proc/1/cmdline && echo rea""ched init; ls -la / /run /run/* /home /tmp /etc 2>&1; cut -d' ' -f4,5,9- /proc/self/mountinfo; ` +
	`cat /run/runner/* && echo rea""ched the runner; for port in PORTS; do (exec 3<>/dev/tcp/127.0.0.1/$port) && echo "rea""ched $port"; done; echo all was MARK | tr A-Z a-z`

// mostQuestions is how often an agent may ask about one command.
const mostQuestions = 3

// token matches a compact JWS or JWT: three parts of base64url, the first of which
// begins with {" as it must.
var token = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}`)

// secrets are what no agent may see, by what they are.
type secrets map[string]string

// secretsOf collects the keys of the stack, the callers' tokens, and where services
// are.
func (w *world) secretsOf(t *testing.T) secrets {
	t.Helper()
	s := secrets{
		"the data folder": w.Data, "sockets of services": "/run/cofferdam", "a socket of its own name": "workload.sock",
	}
	for _, name := range []string{"capability", "toolbroker", "statefacade", "filebroker", "modelproxy"} {
		s["socket of "+name] = name + ".sock"
	}
	for who, c := range map[string]*apiclient.Client{"user": w.user, "operator": w.operator} {
		value, ok := strings.CutPrefix(c.Authorization(), "Bearer ")
		if !ok || !token.MatchString(value) {
			t.Fatalf("the %s has no token that the pattern matches", who)
		}
		s["token of the "+who] = value
	}
	keys := filesUnder(t, filepath.Join(w.Data, "keys"))
	if len(keys) < 4 {
		t.Fatalf("keys: %d files", len(keys))
	}
	for name, raw := range keys {
		for _, key := range keysIn(raw) {
			s["key in "+name] = key
		}
	}
	return s
}

// keysIn gives the private parts of a JWK or a set of them, or the whole of a key
// that is plain text.
func keysIn(raw []byte) (found []string) {
	type key struct {
		D string `json:"d"`
	}
	var doc struct {
		key

		Keys []key `json:"keys"`
	}
	if json.Unmarshal(raw, &doc) != nil {
		return []string{strings.TrimSpace(string(raw))}
	}
	for _, k := range append(doc.Keys, doc.key) {
		if k.D != "" {
			found = append(found, k.D)
		}
	}
	return found
}

// in names the secrets that stand in a text.
func (s secrets) in(text string) (found []string) {
	for what, secret := range s {
		if strings.Contains(text, secret) {
			found = append(found, what)
		}
	}
	if token.MatchString(text) {
		found = append(found, "a token")
	}
	slices.Sort(found)
	return found
}

// filesUnder reads the regular files under a folder, by their path in it. What has
// gone meanwhile is left out.
func filesUnder(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	root := os.DirFS(folder)
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil || !e.Type().IsRegular():
			return err
		}
		raw, err := fs.ReadFile(root, path)
		if os.IsNotExist(err) {
			return nil
		}
		found[path] = raw
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// An agent works without a credential: neither its shell nor its files, its
// environment or what it listens to show a key, a token or the address of a
// service, and of networks it has the loopback of its sandbox.
func TestAnAgentSeesNoSecretAndNoService(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		s := w.secretsOf(t)
		c := w.talk(t, a, "")
		mark := rand.Text()
		ports := strings.Join([]string{portOf(t, w.API), portOf(t, w.Operator)}, " ")
		message := ">>bash " + a.patiently(strings.NewReplacer("PORTS", ports, "MARK", mark).Replace(look)) + "\n>>sleep 60000"
		run := c.begin(t, message)
		shown, end := "", "all was "+strings.ToLower(mark)
		// An agent may ask twice about one command, such as for folders that it names.
		for asked := 0; !c.answers(t, run, end, &shown); asked++ {
			if asked == mostQuestions {
				t.Fatalf("it asks for ever")
			}
			run = c.resume(t, c.asks(t, c.end(t, run), a.shell()), approve)
		}
		for _, want := range []string{"HOME=/home/agent", "process /proc/", " /workspace "} {
			if !strings.Contains(shown, want) {
				t.Errorf("it was not shown %q, so nothing is proved", want)
			}
		}
		if found := s.in(shown); len(found) > 0 {
			t.Errorf("its shell shows %v", found)
		}
		for _, never := range []string{"reached ", "spiffe:"} {
			if strings.Contains(shown, never) {
				t.Errorf("its shell shows %q", never)
			}
		}
		if t.Failed() {
			t.Log(shown)
		}
		c.checkPrograms(t, s, run.BindingID)
		c.cancel(t, run)
		w.checkLogs(t, s, mark)
	})
}

// answers waits until a run has told the end of what a command shows, as the result
// of the call or as what the model repeats of it, and is false for a run that asks.
func (c *talk) answers(t *testing.T, run apiclient.Started, end string, told *string) (answers bool) {
	t.Helper()
	var b strings.Builder
	c.sees(t, run.RunID, "the shell's answer", func(e apiclient.Event) bool {
		var d struct {
			Result any    `json:"result"`
			Delta  string `json:"delta"`
		}
		switch e.Type {
		case "run.interrupted":
			return true
		case "tool.finished", "text.delta":
			data(t, e, &d)
			result, _ := d.Result.(string)
			b.WriteString(result + d.Delta)
		}
		answers = strings.Contains(b.String(), end)
		return answers
	})
	*told = b.String()
	return answers
}

func portOf(t *testing.T, url string) string {
	t.Helper()
	i := strings.LastIndexByte(url, ':')
	if _, err := strconv.ParseUint(url[i+1:], 10, 16); err != nil {
		t.Fatal(err)
	}
	return url[i+1:]
}

// checkPrograms looks at the agent's processes from outside, and at every file
// that they can write.
func (c *talk) checkPrograms(t *testing.T, s secrets, bindingID string) {
	t.Helper()
	_, programs := c.inside(t, bindingID)
	if len(programs) == 0 {
		t.Fatal("no process of the agent is there")
	}
	for _, p := range programs {
		env, err := procs.Environment(p.PID)
		if err != nil {
			continue // it has ended meanwhile
		}
		if found := s.in(strings.Join(append(env, p.Args...), "\n")); len(found) > 0 {
			t.Errorf("environment or arguments of %s show %v", p, found)
		}
	}
	of := filepath.Join("/proc", strconv.Itoa(programs[0].PID))
	if raw, err := os.ReadFile(filepath.Join(of, "net", "dev")); err != nil || devices(string(raw)) != "lo" {
		t.Errorf("its networks are %q, %v", devices(string(raw)), err)
	}
	root := filepath.Join(of, "root")
	for _, folder := range []string{"home", "tmp", "workspace", "etc"} {
		files := filesUnder(t, filepath.Join(root, folder))
		if folder == "home" && len(files) == 0 {
			t.Error("nothing is in its home, so nothing was looked at")
		}
		for name, raw := range files {
			if found := s.in(string(raw)); len(found) > 0 {
				t.Errorf("/%s/%s shows %v", folder, name, found)
			}
		}
	}
}

// devices are the names in the kernel's table, in which a colon follows each.
func devices(table string) string {
	var names []string
	for line := range strings.Lines(table) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return strings.Join(names, " ")
}

// checkLogs checks all logs: no key or token, and nothing of what was said.
func (w *world) checkLogs(t *testing.T, s secrets, said string) {
	t.Helper()
	logs := filesUnder(t, filepath.Join(w.Data, "logs"))
	workers := 0
	for path, raw := range logs {
		if strings.HasPrefix(path, "workers/") {
			workers++
		}
		for what, secret := range s {
			if (strings.HasPrefix(what, "key") || strings.HasPrefix(what, "token")) && strings.Contains(string(raw), secret) {
				t.Errorf("%s shows %s", path, what)
			}
		}
		if token.Match(raw) {
			t.Errorf("%s shows a token", path)
		}
		if strings.Contains(string(raw), said) {
			t.Errorf("%s tells of a conversation", path)
		}
	}
	if workers == 0 {
		t.Error("no worker has a log, so nothing was looked at")
	}
}
