package acp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agent is the test binary played as an agent: it does what the lines of a prompt
// that begin with a word of its own say. It keeps its session in its home, as
// agents do.
//
//	text T, thought T       a chunk
//	raw {json}              a line as it is, with $S for the session's id
//	model T                 ask the model T, and repeat its words
//	mcp NAME {json}         call a tool of the MCP server
//	ask ID TITLE KIND {json}   ask for permission, and tell what was chosen
//	askagain ...            the same without waiting for the answer
//	answers                 wait for those answers, and tell them
//	heard                   wait until what was said before has arrived
//	later MS {json}         a raw line after so many milliseconds, also after the turn
//	child FILE              a process that goes on, its id in FILE
//	garbage, long, flood, hang, deaf, call METHOD, exit N, stop REASON, error CODE, history, home FILE
type agent struct {
	mu     sync.Mutex
	out    *bufio.Writer
	mode   string
	turns  session
	mcp    *mcp.ClientSession
	next   int
	wait   map[string]chan json.RawMessage
	cancel context.CancelFunc
	asked  []chan json.RawMessage
	server struct {
		URL     string `json:"url"`
		Headers []struct{ Name, Value string }
	}
}

// session is what the agent keeps.
type session struct {
	ID      string   `json:"id"`
	Prompts []string `json:"prompts"`
}

const envAgent = "COFFERDAM_TEST_AGENT"

func playAgent() {
	a := &agent{out: bufio.NewWriter(os.Stdout), mode: os.Getenv(envAgent), wait: map[string]chan json.RawMessage{}}
	if strings.Contains(a.mode, "stubborn") {
		signal.Ignore(syscall.SIGTERM)
	}
	if a.mode == "dies" {
		os.Exit(3)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if strings.Contains(a.mode, "stubborn") {
				select {}
			}
			os.Exit(0)
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			os.Exit(9)
		}
		a.take(m)
	}
}

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (a *agent) take(m message) {
	if a.mode == "hang "+m.Method {
		return
	}
	switch m.Method {
	case "":
		a.mu.Lock()
		ch := a.wait[string(m.ID)]
		a.mu.Unlock()
		if ch != nil {
			if m.Error != nil {
				m.Result = m.Error
			}
			ch <- m.Result
		}
	case "initialize":
		version := 1
		if a.mode == "old" {
			version = 0
		}
		a.answer(m.ID, map[string]any{"protocolVersion": version, "agentCapabilities": map[string]any{
			"loadSession": a.mode != "noload", "promptCapabilities": map[string]bool{"image": true, "embeddedContext": true},
		}})
	case "session/new":
		if a.mode == "login" {
			a.refuse(m.ID, -32000)
			return
		}
		a.open(m.Params)
		a.turns = session{ID: "ses-" + strconv.Itoa(os.Getpid())}
		a.save()
		a.answer(m.ID, map[string]any{"sessionId": a.turns.ID})
	case "session/load":
		a.load(m)
	case "session/set_mode":
		a.line(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + a.turns.ID + `","update":{"sessionUpdate":"current_mode_update","currentModeId":"x"}}}`)
		a.answer(m.ID, map[string]any{})
	case "session/prompt":
		ctx, cancel := context.WithCancel(context.Background())
		a.mu.Lock()
		a.cancel = cancel
		a.mu.Unlock()
		go a.prompt(ctx, m)
	case "session/cancel":
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.cancel != nil && !strings.Contains(a.mode, "stubborn") {
			a.cancel()
		}
	}
}

func (a *agent) open(params json.RawMessage) {
	var p struct {
		McpServers []json.RawMessage `json:"mcpServers"`
	}
	if json.Unmarshal(params, &p) == nil && len(p.McpServers) > 0 {
		_ = json.Unmarshal(p.McpServers[0], &a.server)
	}
}

func (a *agent) file(id string) string {
	return filepath.Join(os.Getenv("HOME"), "sessions", id+".json")
}

func (a *agent) save() {
	b, _ := json.Marshal(a.turns)
	_ = os.MkdirAll(filepath.Dir(a.file("x")), 0o700)
	_ = os.WriteFile(a.file(a.turns.ID), b, 0o600)
}

func (a *agent) load(m message) {
	a.open(m.Params)
	var p struct{ SessionID string }
	_ = json.Unmarshal(m.Params, &p)
	b, err := os.ReadFile(a.file(p.SessionID))
	if err != nil || json.Unmarshal(b, &a.turns) != nil {
		a.refuse(m.ID, -32002)
		return
	}
	replay := func() {
		for i, text := range a.turns.Prompts {
			a.update(map[string]any{"sessionUpdate": "user_message_chunk", "content": map[string]string{"type": "text", "text": text}})
			a.update(map[string]any{"sessionUpdate": "tool_call", "toolCallId": fmt.Sprint("old-", i), "title": "replayed", "status": "pending"})
			a.chunk("agent_message_chunk", "replayed")
		}
	}
	if strings.Contains(a.mode, "late") {
		a.answer(m.ID, map[string]any{})
		replay()
		return
	}
	replay()
	a.answer(m.ID, map[string]any{})
}

func (a *agent) line(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.out.WriteString(s + "\n")
	_ = a.out.Flush()
}

func (a *agent) send(m message) {
	m.JSONRPC = "2.0"
	b, _ := json.Marshal(m)
	a.line(string(b))
}

func (a *agent) answer(id json.RawMessage, v any) {
	b, _ := json.Marshal(v)
	a.send(message{ID: id, Result: b})
}

func (a *agent) refuse(id json.RawMessage, code int) {
	a.send(message{ID: id, Error: json.RawMessage(`{"code":` + strconv.Itoa(code) + `,"message":"secret-of-the-agent"}`)})
}

func (a *agent) update(u map[string]any) {
	b, _ := json.Marshal(map[string]any{"sessionId": a.turns.ID, "update": u})
	a.send(message{Method: "session/update", Params: b})
}

func (a *agent) chunk(kind, text string) {
	a.update(map[string]any{"sessionUpdate": kind, "content": map[string]string{"type": "text", "text": text}})
}

func (a *agent) say(text string) { a.chunk("agent_message_chunk", text) }

// request asks the client, and gives the channel of the answer.
func (a *agent) request(method string, params any) chan json.RawMessage {
	a.mu.Lock()
	a.next++
	id := json.RawMessage(strconv.Itoa(1000 + a.next))
	ch := make(chan json.RawMessage, 1)
	a.wait[string(id)] = ch
	a.mu.Unlock()
	b, _ := json.Marshal(params)
	a.send(message{ID: id, Method: method, Params: b})
	return ch
}

func (a *agent) prompt(ctx context.Context, m message) {
	var p struct {
		Prompt []struct {
			Type, Text string
			Resource   struct{ URI, Text string }
		}
	}
	_ = json.Unmarshal(m.Params, &p)
	a.turns.Prompts = append(a.turns.Prompts, p.Prompt[0].Text)
	a.save()
	stop := "end_turn"
	script := p.Prompt[0].Text
	if strings.HasPrefix(script, "The user has decided") {
		script = os.Getenv("AFTER")
	}
	for line := range strings.Lines(script) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "stop":
			stop = rest
		case "error":
			code, _ := strconv.Atoi(rest)
			a.refuse(m.ID, code)
			return
		case "blocks":
			for _, b := range p.Prompt[1:] {
				a.say("[" + b.Type + " " + b.Resource.URI + " " + b.Resource.Text + "]")
			}
		default:
			a.step(ctx, word, rest)
		}
		if ctx.Err() != nil {
			stop = "cancelled"
			break
		}
	}
	a.answer(m.ID, map[string]any{"stopReason": stop})
}

func (a *agent) step(ctx context.Context, word, rest string) {
	switch word {
	case "text":
		a.say(rest)
	case "thought":
		a.chunk("agent_thought_chunk", rest)
	case "raw":
		a.line(strings.ReplaceAll(rest, "$S", a.turns.ID))
	case "later":
		ms, line, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(ms)
		time.AfterFunc(time.Duration(n)*time.Millisecond, func() { a.line(strings.ReplaceAll(line, "$S", a.turns.ID)) })
	case "model":
		a.model(ctx, rest)
	case "mcp":
		name, args, _ := strings.Cut(rest, " ")
		a.tool(ctx, name, args)
	case "ask", "askagain":
		f := strings.SplitN(rest, " ", 4)
		ch := a.request("session/request_permission", map[string]any{
			"sessionId": a.turns.ID,
			"toolCall":  map[string]any{"toolCallId": f[0], "title": f[1], "kind": f[2], "rawInput": json.RawMessage(f[3])},
			"options": []map[string]string{
				{"optionId": "for-ever", "name": "a", "kind": "allow_always"}, {"optionId": "yes", "name": "b", "kind": "allow_once"}, {"optionId": "no", "name": "c", "kind": "reject_once"},
			},
		})
		a.asked = append(a.asked, ch)
		if word == "ask" {
			a.answers(ctx)
		}
	case "answers":
		a.answers(ctx)
	case "call":
		method, params, _ := strings.Cut(rest, " ")
		if params == "" {
			params = "{}"
		}
		a.say("answered " + string(<-a.request(method, json.RawMessage(params))) + "\n")
	case "heard":
		// What was said before has arrived, once a question behind it is answered. Calls
		// of tools go another way, and may overtake it.
		<-a.request("fs/read_text_file", map[string]any{})
	case "child":
		c := exec.Command("/bin/sleep", "600") //nolint:noctx // what ends it is tested
		_ = c.Start()
		_ = os.WriteFile(rest, []byte(strconv.Itoa(c.Process.Pid)), 0o600)
	case "home":
		b, _ := os.ReadFile(filepath.Join(os.Getenv("HOME"), rest))
		a.say(string(b))
	case "write":
		name, content, _ := strings.Cut(rest, " ")
		_ = os.WriteFile(filepath.Join(os.Getenv("HOME"), name), []byte(content), 0o600)
	case "garbage":
		a.line("this is \xff\xfe no message")
	case "long":
		a.line(`{"jsonrpc":"2.0","method":"session/update","params":"` + strings.Repeat("x", 11<<20) + `"}`)
	case "flood":
		for ctx.Err() == nil {
			a.say("flood ")
		}
	case "many":
		n, _ := strconv.Atoi(rest)
		for i := range n {
			a.say(strconv.Itoa(i) + " ")
		}
	case "hang":
		<-ctx.Done()
	case "deaf":
		select {}
	case "exit":
		code, _ := strconv.Atoi(rest)
		os.Exit(code)
	case "history":
		a.say(fmt.Sprintf("prompts=%d", len(a.turns.Prompts)))
	}
}

func (a *agent) answers(ctx context.Context) {
	for _, ch := range a.asked {
		select {
		case r := <-ch:
			var o struct {
				Outcome struct{ Outcome, OptionID string }
			}
			_ = json.Unmarshal(r, &o)
			a.say("[" + o.Outcome.Outcome + " " + o.Outcome.OptionID + "]")
		case <-ctx.Done():
			return
		}
	}
	a.asked = nil
}

// model asks the model with one tool offered, and repeats what it says, as agents
// do: also of an answer that breaks off, of which they say nothing.
func (a *agent) model(ctx context.Context, text string) {
	tools := `"tools":[{"type":"function","function":{"name":"x","parameters":{"type":"object"}}}],`
	if title, side := strings.CutPrefix(text, "side "); side {
		tools, text = "", title
	}
	q, _ := json.Marshal(text)
	body := `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + tools + `"messages":[{"role":"user","content":` + string(q) + `}]}`
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("MODEL_URL")+"/chat/completions", bytes.NewReader([]byte(body)))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+os.Getenv("MODEL_KEY"))
	res, err := http.DefaultClient.Do(req) //nolint:forbidigo // a test's own program
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(io.LimitReader(res.Body, 1<<20))
	for lines.Scan() {
		var c struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &c) == nil && len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
			a.say(c.Choices[0].Delta.Content)
		}
	}
}

type withHeaders struct {
	headers []struct{ Name, Value string }
}

func (t withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, h := range t.headers {
		r.Header.Set(h.Name, h.Value)
	}
	return http.DefaultTransport.RoundTrip(r) //nolint:forbidigo // a test's own program
}

func (a *agent) tool(ctx context.Context, name, args string) {
	if a.mcp == nil {
		c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		s, err := c.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: a.server.URL, HTTPClient: &http.Client{Transport: withHeaders{a.server.Headers}}, DisableStandaloneSSE: true, MaxRetries: -1,
		}, nil)
		if err != nil {
			a.say("[no server: " + err.Error() + "]")
			return
		}
		a.mcp = s
	}
	res, err := a.mcp.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	if err != nil {
		a.say("[no result: " + err.Error() + "]")
		return
	}
	text := ""
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	a.say(fmt.Sprintf("[%s error=%v]", text, res.IsError))
}
