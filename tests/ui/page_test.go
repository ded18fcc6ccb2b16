package ui

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
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
	p.decidesSeveral(t)
	p.fillsInAForm(t)
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

// successes is how many runs of the conversation on the page have succeeded.
const successes = `(document.getElementById("log").textContent.split("The run ended: success.").length - 1)`

// tell says something of several lines, and sends it by a key.
func (p *page) tell(t *testing.T, message string) {
	t.Helper()
	p.do(t, chromedp.Focus("#message"))
	for i, l := range strings.Split(message, "\n") {
		if i > 0 {
			p.do(t, chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(input.ModifierShift)))
		}
		p.keys(t, l)
	}
	p.keys(t, kb.Enter)
	p.do(t, chromedp.WaitVisible("#answer"))
}

// decidesSeveral is asked about three calls at once, and answers with one decision on
// each: one is made, one as it was edited, one not.
func (p *page) decidesSeveral(t *testing.T) {
	t.Helper()
	before := value[int](t, p, successes)
	call := `>>call fs.read_text_file {"path":"nobody-has-this.txt"}`
	p.tell(t, call+"\n"+call+"\n"+call)
	if n := value[int](t, p, `document.querySelectorAll("#answer fieldset").length`); n != 3 {
		t.Fatalf("%d calls are asked about", n)
	}
	if n := value[int](t, p, `document.querySelectorAll("#answer button").length`); n != 1 {
		t.Errorf("%d buttons answer", n)
	}
	p.do(t,
		chromedp.SetValue("#answer fieldset:nth-of-type(2) select", "edit"),
		chromedp.SetValue("#answer fieldset:nth-of-type(2) textarea", `{"path":"notes.txt"}`),
		chromedp.SetValue("#answer fieldset:nth-of-type(3) select", "reject"),
		chromedp.Focus("#answer button"))
	p.keys(t, kb.Enter)
	p.until(t, successes+" === "+strconv.Itoa(before+1))
	if left := value[int](t, p, `document.querySelectorAll("#answer").length`); left != 0 {
		t.Error("it still asks")
	}
	// The state of the record: nothing waits any more, and each call has its end.
	tools := value[[]string](t, p, `[...document.querySelectorAll("#log .tool")].map((l) => l.textContent)`)
	last := strings.Join(tools[max(len(tools)-6, 0):], "\n")
	if !strings.Contains(last, "tool_denied") {
		t.Errorf("none was rejected: %q", tools)
	}
}

// fillsInAForm is asked for a word by a tool, dismisses that once, and then gives it.
func (p *page) fillsInAForm(t *testing.T) {
	t.Helper()
	before := value[int](t, p, successes)
	p.tell(t, ">>call gate.ask {}")
	if text := value[string](t, p, `document.querySelector("#answer legend").textContent`); !strings.Contains(text, "Which branch?") {
		t.Errorf("it asks %q", text)
	}
	p.until(t, `document.activeElement.tagName === "INPUT" || document.activeElement.tagName === "BUTTON"`)
	p.do(t, chromedp.Focus("#answer input"))
	p.keys(t, kb.Enter) // it is required, and empty
	if n := value[int](t, p, `document.querySelectorAll("#answer input:invalid").length`); n != 1 {
		t.Error("an empty answer is sent")
	}
	p.keys(t, "release-7"+kb.Enter)
	p.until(t, successes+" === "+strconv.Itoa(before+1))
	p.says(t, "release-7")
	p.tell(t, ">>call gate.ask {}")
	p.do(t, chromedp.Focus(`#answer button[value="cancelled"]`))
	p.keys(t, kb.Enter)
	p.until(t, successes+" === "+strconv.Itoa(before+2))
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
