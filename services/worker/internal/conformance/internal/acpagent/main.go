// Command acpagent is an agent that speaks the Agent Client Protocol on its
// standard streams, for the conformance suite: the plain loop of a model and its
// tools, with a model endpoint and an MCP server as they are given to it. Like
// most agents it keeps its session in its home, asks before each call, and tells
// of its calls whatever becomes of them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// object is any JSON object.
type object = map[string]any

// message is one of the protocol.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

type agent struct {
	session session
	tools   server

	mu     sync.Mutex
	asked  int
	wait   map[string]chan json.RawMessage
	cancel context.CancelFunc
}

func main() {
	a := &agent{wait: map[string]chan json.RawMessage{}, cancel: func() {}}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // nobody is there any more
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		a.take(m)
	}
}

// params of all requests, as far as they are read.
type params struct {
	SessionID  string   `json:"sessionId"`
	MCPServers []server `json:"mcpServers"`
	Prompt     []block  `json:"prompt"`
}

// block is a part of a prompt: a text, or an image.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MIMEType string `json:"mimeType"`
}

func (a *agent) take(m message) {
	var p params
	_ = json.Unmarshal(m.Params, &p) // what is not there is empty
	if len(p.MCPServers) > 0 {
		a.tools = p.MCPServers[0]
	}
	switch m.Method {
	case "":
		a.mu.Lock()
		answer := a.wait[string(m.ID)]
		a.mu.Unlock()
		if answer != nil {
			answer <- m.Result
		}
	case "initialize":
		a.answer(m.ID, object{"protocolVersion": 1, "agentCapabilities": object{"loadSession": true, "promptCapabilities": object{"image": true}}})
	case "session/new":
		a.session = session{ID: "session-" + strconv.Itoa(os.Getpid())}
		a.session.save()
		a.answer(m.ID, object{"sessionId": a.session.ID})
	case "session/load":
		if !a.session.load(p.SessionID) {
			a.refuse(m.ID)
			return
		}
		a.replay()
		a.answer(m.ID, object{})
	case "session/prompt":
		ctx, cancel := context.WithCancel(context.Background())
		a.mu.Lock()
		a.cancel = cancel
		a.mu.Unlock()
		go a.prompt(ctx, m.ID, p.Prompt)
	case "session/cancel":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cancel()
	}
}

func (a *agent) prompt(ctx context.Context, id json.RawMessage, prompt []block) {
	stop := "end_turn"
	if err := a.turn(ctx, prompt); ctx.Err() != nil {
		stop = "cancelled"
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		a.refuse(id)
		return
	}
	a.answer(id, object{"stopReason": stop})
}

// replay tells what the session holds, as agents do when they load one.
func (a *agent) replay() {
	for _, m := range a.session.Messages {
		if m.Role == "user" {
			a.chunk("user_message_chunk", m.Content)
		}
	}
}

func (a *agent) send(m message) {
	m.JSONRPC = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n')) // whoever reads has gone
}

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func (a *agent) answer(id json.RawMessage, result object) {
	a.send(message{ID: id, Result: raw(result)})
}

func (a *agent) refuse(id json.RawMessage) {
	a.send(message{ID: id, Error: raw(object{"code": -32603, "message": "it did not work"})})
}

func (a *agent) update(u object) {
	a.send(message{Method: "session/update", Params: raw(object{"sessionId": a.session.ID, "update": u})})
}

func (a *agent) chunk(kind, text string) {
	a.update(object{"sessionUpdate": kind, "content": object{"type": "text", "text": text}})
}

// ask asks the client for something; the answer comes on the channel.
func (a *agent) ask(method string, params object) <-chan json.RawMessage {
	answer := make(chan json.RawMessage, 1)
	a.mu.Lock()
	a.asked++
	id := json.RawMessage(strconv.Itoa(a.asked))
	a.wait[string(id)] = answer
	a.mu.Unlock()
	a.send(message{ID: id, Method: method, Params: raw(params)})
	return answer
}
