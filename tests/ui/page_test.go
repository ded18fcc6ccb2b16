package ui

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"cofferdam.dev/tests/stack"
)

// A person signs in by the link, talks to the agent, is asked, decides, watches and
// stops, by the keyboard alone; and whatever an agent says stays text.
func TestThePage(t *testing.T) {
	p := open(t)
	p.signIn(t)
	p.hostile(t)
	p.decides(t)
	p.watchesAndStops(t)
	p.healthy(t)
	p.signsOut(t)
}

// signIn opens the link, which works once and leaves nothing in the address.
func (p *page) signIn(t *testing.T) {
	t.Helper()
	p.do(t, chromedp.Navigate(p.link), chromedp.WaitVisible("#main"))
	if at := value[string](t, p, "location.href"); strings.Contains(at, "code") || !strings.HasSuffix(at, "/ui/") {
		t.Errorf("the address is %s", at)
	}
	if f := p.focused(t); f != "message" {
		t.Errorf("the focus is on %s", f)
	}
	if name := value[string](t, p, `document.querySelector("#agent option").textContent`); name != `<b onclick="x">Careful</b> v1` {
		t.Errorf("the agent is called %s", name)
	}
}

// hostile has the agent say what would be markup elsewhere.
func (p *page) hostile(t *testing.T) {
	t.Helper()
	const text = `<script>document.title="owned"</script><img src=x onerror='document.title="owned"'><a href="javascript:document.title=1">x</a>`
	p.keys(t, ">>say "+text+kb.Enter)
	p.says(t, "The run ended: success.")
	said := value[string](t, p, `[...document.querySelectorAll("#log .text")].at(-1).textContent`)
	if !strings.Contains(said, text) {
		t.Errorf("it says %q", said)
	}
	if n := value[int](t, p, `document.querySelectorAll("#log :not(p), script:not([src]), [onerror], [onclick]").length`); n != 0 {
		t.Errorf("%d elements were made of text", n)
	}
	if title := value[string](t, p, "document.title"); title != "Cofferdam" {
		t.Errorf("the title is %q", title)
	}
}

// decides approves a call, edits one, and rejects one.
func (p *page) decides(t *testing.T) {
	t.Helper()
	ask := func() {
		t.Helper()
		p.do(t, chromedp.Focus("#message"))
		p.keys(t, `>>call fs.read_text_file {"path":"nobody-has-this.txt"}`+kb.Enter)
		p.do(t, chromedp.WaitVisible("#answer"))
		if text := value[string](t, p, `document.querySelector("#answer legend").textContent`); text != "May the tool fs.read_text_file be called?" {
			t.Errorf("it asks %q", text)
		}
		p.until(t, `document.activeElement.textContent === "Approve"`)
	}
	results := func() int {
		t.Helper()
		return value[int](t, p, `document.querySelectorAll("#log .tool").length`)
	}
	ended := func(n string) {
		t.Helper()
		p.until(t, `document.getElementById("log").textContent.split("The run ended: success.").length > `+n)
	}
	ask()
	p.keys(t, kb.Enter)
	ended("2")
	before := results()
	ask()
	p.do(t, chromedp.SetValue("#answer textarea", `{"path":"notes.txt"}`))
	p.keys(t, kb.Tab+kb.Enter) // to "Approve as edited"
	ended("3")
	if after := results(); after <= before {
		t.Errorf("%d lines of tools, then %d", before, after)
	}
	ask()
	p.keys(t, kb.Tab+kb.Tab+kb.Enter) // to "Reject"
	ended("4")
	// What a conversation waits for is asked again where it is opened.
	ask()
	p.do(t, chromedp.Click("#where button"))
	p.until(t, `document.activeElement.textContent === "Approve"`)
	if log := value[string](t, p, `document.getElementById("log").textContent`); log != "" {
		t.Errorf("the log still says %q", log)
	}
	p.keys(t, kb.Enter)
	p.says(t, "The run ended: success.")
}

// watchesAndStops sees where the conversation lives while a run goes on, and ends it.
func (p *page) watchesAndStops(t *testing.T) {
	t.Helper()
	p.until(t, `[...document.querySelectorAll("#bindings button")].every((b) => b.hidden)`) // the run before is over
	p.do(t, chromedp.Focus("#message"))
	p.keys(t, ">>sleep 60000"+kb.Enter)
	p.until(t, `[...document.querySelectorAll("#bindings button")].some((b) => !b.hidden)`)
	row := value[[]string](t, p, `[...document.querySelectorAll("#bindings tr")].map((r) => r.innerText)`)
	if len(row) != 1 || !strings.Contains(row[0], approving+" v1") || !strings.Contains(row[0], "bound") || !strings.Contains(row[0], "process ") {
		t.Errorf("the bindings are %q", row)
	}
	p.do(t, chromedp.Focus("#stop"))
	p.until(t, `document.activeElement.id === "stop"`)
	p.keys(t, kb.Enter)
	p.says(t, "The run ended: cancelled.")
	p.until(t, `[...document.querySelectorAll("#bindings button")].every((b) => b.hidden)`)
}

// signsOut ends the session; the link does not open another one, and no token opens
// the page that is not an operator's.
func (p *page) signsOut(t *testing.T) {
	t.Helper()
	p.do(t, chromedp.Focus("#leave"))
	p.keys(t, kb.Enter)
	p.do(t, chromedp.WaitVisible("#enter"), chromedp.Navigate("about:blank"), chromedp.Navigate(p.link), chromedp.WaitVisible("#enter"))
	p.until(t, `document.getElementById("status").textContent.includes("works once")`)
	// Who is no operator is told so, with a token that is good elsewhere.
	p.pastes(t, "nobody")
	p.until(t, `document.getElementById("status").textContent.includes("may not do this")`)
	if value[bool](t, p, `!document.getElementById("main").hidden`) {
		t.Error("nobody sees the page")
	}
	p.pastes(t, stack.Operator)
	p.do(t, chromedp.WaitVisible("#main"))
}

// pastes signs in with a token of a subject.
func (p *page) pastes(t *testing.T, subject string) {
	t.Helper()
	file, err := p.Token(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.do(t, chromedp.SetValue("#token", strings.TrimSpace(string(header))), chromedp.Focus("#token"))
	p.keys(t, kb.Enter)
}
