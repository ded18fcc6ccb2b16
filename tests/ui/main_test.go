package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/gate"
	"cofferdam.dev/tests/stack"
)

// gateArgument before a folder makes this program the MCP server of it, whose tool asks
// the user something.
const gateArgument = "--gate"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == gateArgument {
		if err := gate.Serve(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds a wait for something that must come. It is no measure of anything.
const patience = time.Minute

// page is one tab on the page of a stack.
type page struct {
	*stack.Stack
	ctx  context.Context //nolint:containedctx // that of the tab
	link string

	mu sync.Mutex
	// faults are what the page's own code and the policy complained of.
	faults []string
}

// approving is an agent that asks a person before it reads a file.
const approving = "careful"

func agents() ([]byte, error) {
	return json.Marshal(map[string]any{"agents": []any{map[string]any{
		"agent_id": approving, "name": `<b onclick="x">Careful</b>`, "organization": "default", "harness": "native", "adapter_version": "1.1.0",
		"model_alias": "demo", "profile": "local", "tools": []string{"fs.list_directory", "fs.read_text_file", "gate.ask"}, "approve_tools": []string{"fs.read_text_file"},
	}}})
}

// asking gives the file that configures the gate as a further MCP server.
func asking(t *testing.T, folder string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(folder, "gate")
	raw, err := json.Marshal(map[string]any{"servers": []any{map[string]any{
		"namespace": "gate", "transport": "stdio", "command": []string{self, gateArgument, shared}, "tools": []string{gate.ToolAsk},
		"tool_options": map[string]any{gate.ToolAsk: map[string]any{"read_only": true}}, "timeout": "1m", "write_folders": []string{shared},
	}}})
	config := filepath.Join(folder, "mcp.json")
	// The server is another user, who shares this folder of a closed one.
	if err = errors.Join(err, os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777),
		os.WriteFile(config, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	return config
}

// open starts a stack and a browser. Both end with the test.
func open(t *testing.T) *page {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("the page is tested in Chromium (apt-get install chromium): %v", err)
	}
	folder := t.TempDir()
	raw, err := agents()
	file := filepath.Join(folder, "agents.json")
	if err = errors.Join(err, os.WriteFile(file, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	p := &page{}
	if p.Stack, err = stack.Up(t.Context(), stack.Need(t), filepath.Join(folder, "data"), "--agents", file, "--mcp-config", asking(t, folder)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	// What it says to people comes by another pipe than that it is ready.
	link := regexp.MustCompile(`(http://\S+/ui/#code=\S+)\n`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := stack.Until(ctx, func() (bool, error) {
		found := link.FindStringSubmatch(p.Said())
		if found != nil {
			p.link = found[1]
		}
		return found != nil, nil
	}); err != nil {
		t.Fatalf("`cofferdam up` printed no link to the page: %v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(filepath.Join(folder, "browser")),
		chromedp.WSURLReadTimeout(patience))
	browser, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(end)
	tab, closeTab := chromedp.NewContext(browser)
	t.Cleanup(closeTab)
	chromedp.ListenTarget(tab, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.faults = append(p.faults, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && e.Entry.Source == log.SourceSecurity {
				p.faults = append(p.faults, e.Entry.Text)
			}
		}
	})
	p.ctx = tab
	p.do(t, log.Enable())
	return p
}

// do acts in the tab.
func (p *page) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	// The first Run of a tab makes it, and it must outlive this bound.
	if chromedp.FromContext(p.ctx).Target == nil {
		ctx = p.ctx
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatalf("%v; the page says: %s", err, p.text())
	}
}

// text of the page, for people.
func (p *page) text() string {
	var text string
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body?.innerText ?? ""`, &text)) // it is for a failure that is told already
	return text
}

// value of an expression.
func value[T any](t *testing.T, p *page, expression string) T {
	t.Helper()
	var v T
	p.do(t, chromedp.Evaluate(expression, &v))
	return v
}

// until waits until an expression holds.
func (p *page) until(t *testing.T, expression string) {
	t.Helper()
	p.do(t, chromedp.Poll(expression, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
}

// says waits until the log has a text.
func (p *page) says(t *testing.T, text string) {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	p.until(t, `document.getElementById("log").textContent.includes(`+string(raw)+`)`)
}

// focused is the id or the text of what has the focus.
func (p *page) focused(t *testing.T) string {
	t.Helper()
	return value[string](t, p, `document.activeElement.id || document.activeElement.textContent`)
}

// keys presses keys, as somebody without a mouse does.
func (p *page) keys(t *testing.T, text string) {
	t.Helper()
	p.do(t, chromedp.KeyEvent(text))
}

// healthy fails where the page's code or its policy complained.
func (p *page) healthy(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) > 0 {
		t.Errorf("the page complains: %s", strings.Join(p.faults, "; "))
	}
}
