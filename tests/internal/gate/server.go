package gate

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// ToolPass is the tool that answers when it is let through.
	ToolPass = "pass"
	// ToolFingerprint is the tool that shows that there is a credential.
	ToolFingerprint = "fingerprint"
	// ToolAsk is the tool that asks the user something in the midst of its call, and
	// answers with what it was told.
	ToolAsk = "ask"
	// CredentialVariable is where the server finds its credential.
	CredentialVariable = "GATE_CREDENTIAL" //nolint:gosec // the name of a variable

	// maxLine bounds a message, in bytes.
	maxLine = 1 << 20
	// patience bounds how long a call waits to be let through.
	patience  = time.Minute
	lookAgain = 10 * time.Millisecond
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	// Result of what this server asked; there is no method then.
	Result json.RawMessage `json:"result"`
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// server keeps its state in a folder that the test looks into.
type server struct {
	folder string

	mu  sync.Mutex // of what follows
	out io.Writer
	// asked is where the answers to this server's own requests go, by id.
	asked map[string]chan json.RawMessage
}

// Serve answers requests until in ends or ctx does. folder is shared with a
// [Gate].
func Serve(ctx context.Context, folder string, in io.Reader, out io.Writer) error {
	s := &server{folder: folder, out: out, asked: map[string]chan json.RawMessage{}}
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		switch {
		case r.Method == "":
			s.told(string(r.ID), r.Result)
		case r.ID != nil: // else a notification
			calls.Go(func() { s.answer(ctx, r) })
		}
	}
	return lines.Err()
}

func (s *server) answer(ctx context.Context, r request) {
	res := response{Version: "2.0", ID: r.ID}
	var err error
	switch r.Method {
	case "initialize":
		res.Result, err = initialize(r.Params)
	case "ping":
		res.Result = struct{}{}
	case "tools/list":
		res.Result = map[string]any{"tools": tools()}
	case "tools/call":
		res.Result, err = s.call(ctx, r.Params)
	default:
		res.Error = &failure{-32601, "method not found"}
	}
	if err != nil {
		res.Error = &failure{-32602, err.Error()}
	}
	s.write(res)
}

func (s *server) write(message any) {
	raw, err := json.Marshal(message)
	if err != nil {
		panic(err) // only values of our own are in it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(raw, '\n')) // the client may have gone
}

// question is what the tool ask asks.
const question = `{"mode":"form","message":"Which branch?","requestedSchema":{"type":"object","properties":{"branch":{"type":"string"}},"required":["branch"]}}`

// ask asks the user, and waits for what they say.
func (s *server) ask(ctx context.Context) (any, error) {
	id := `"` + rand.Text() + `"`
	answer := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.asked[id] = answer
	s.mu.Unlock()
	s.write(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": "elicitation/create", "params": json.RawMessage(question)})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case said := <-answer:
		return text("told " + string(said)), nil
	}
}

func (s *server) told(id string, result json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := s.asked[id]; answer != nil {
		answer <- result
		delete(s.asked, id)
	}
}

func initialize(params json.RawMessage) (any, error) {
	var p struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	return map[string]any{
		"protocolVersion": p.ProtocolVersion,
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]any{"name": "gate", "version": "1"},
	}, nil
}

func tools() []any {
	return []any{
		map[string]any{
			"name": ToolPass, "description": "Notes the name and answers once it is let through.",
			"inputSchema": map[string]any{
				"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
				"required": []string{"name"}, "additionalProperties": false,
			},
		},
		map[string]any{
			"name": ToolAsk, "description": "Asks the user for a branch.",
			"inputSchema": map[string]any{"type": "object", "additionalProperties": false},
		},
		map[string]any{
			"name": ToolFingerprint, "description": "The SHA-256 of the credential of this server.",
			"inputSchema": map[string]any{"type": "object", "additionalProperties": false},
		},
	}
}

func (s *server) call(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		Name      string `json:"name"`
		Arguments struct {
			Name string `json:"name"`
		} `json:"arguments"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	switch p.Name {
	case ToolFingerprint:
		return text(Fingerprint(os.Getenv(CredentialVariable))), nil
	case ToolAsk:
		if s.asked == nil {
			return nil, errors.New("there is no way to ask")
		}
		return s.ask(ctx)
	case ToolPass:
		return s.pass(ctx, p.Arguments.Name)
	}
	return nil, errors.New("no such tool")
}

func text(s string) any {
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}}
}

func (s *server) pass(ctx context.Context, name string) (any, error) {
	if name == "" || strings.ContainsAny(name, "/\n") {
		return nil, errors.New("name: a word")
	}
	if err := appendLine(filepath.Join(s.folder, callsFile), name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if _, err := os.Stat(filepath.Join(s.folder, openPrefix+name)); err == nil {
			return text("passed " + name), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody let %s through: %w", name, ctx.Err())
		case <-time.After(lookAgain):
		}
	}
}

// appendLine writes a whole line in one write, so that several processes can.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Fingerprint is what the tool of that name answers for a credential.
func Fingerprint(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:])
}
