package hostile

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// asServer is the first argument that makes a test binary this server.
const asServer = "hostile-mcp-server"

// Command starts this server with further arguments: -effects FILE is where a
// line is added for each effect; -mode is one of the modes below.
func Command(tb testing.TB, args ...string) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return append([]string{self, asServer}, args...)
}

// Effects reads the lines that were added to the file of -effects.
func Effects(tb testing.TB, file string) []string {
	tb.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(b))
}

// The modes of the server.
const (
	ModeSilent    = "silent"     // answers nothing at all
	ModeExit      = "exit"       // ends at once, with a message on stderr
	ModeDeaf      = "deaf"       // reads nothing after the list of tools was asked for
	ModeEndless   = "endless"    // has pages of tools without end
	ModeMalformed = "malformed"  // has malformed tools beside good ones
	ModeChatter   = "chatter"    // sends notifications without end
	ModeStubborn  = "stubborn"   // does not end with its input, nor on SIGTERM
	ModeExitLater = "exit-later" // ends after the list of tools was asked for
)

// It ends by syscall.Exit throughout: os.Exit takes a second under the race
// detector.

// MainIfAsked runs the server and ends the process, if this process was started
// with Command.
func MainIfAsked() {
	if len(os.Args) < 2 || os.Args[1] != asServer {
		return
	}
	s := server{out: os.Stdout}
	fs := flag.NewFlagSet(asServer, flag.ExitOnError)
	fs.StringVar(&s.effects, "effects", "", "file that gets a line for each effect")
	fs.StringVar(&s.mode, "mode", "", "how to misbehave")
	_ = fs.Parse(os.Args[2:]) // it exits by itself
	s.run()
	syscall.Exit(0)
}

type server struct {
	mode    string
	effects string

	mu  sync.Mutex
	out *os.File
	// asked gets the answers to what this server asks, by id.
	asked map[string]chan json.RawMessage
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name           string          `json:"name"`
		Cursor         string          `json:"cursor"`
		Arguments      json.RawMessage `json:"arguments"`
		InputResponses json.RawMessage `json:"inputResponses"`
		RequestState   string          `json:"requestState"`
		Capabilities   json.RawMessage `json:"capabilities"`
		Meta           struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
	// Result and Error are of an answer to this server.
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (s *server) run() {
	switch s.mode {
	case ModeExit:
		fmt.Fprintf(os.Stderr, "cannot start with the token %s\n", os.Getenv("API_TOKEN"))
		syscall.Exit(1)
	case ModeStubborn:
		ignoreSignals()
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if s.mode == ModeStubborn {
				select {}
			}
			return
		}
		var r request
		if json.Unmarshal(line, &r) != nil || s.mode == ModeSilent {
			continue
		}
		if r.Method == "notifications/cancelled" {
			s.effect("cancelled")
		}
		if len(r.ID) == 0 {
			continue
		}
		if r.Method == "" {
			s.mu.Lock()
			waits := s.asked[string(r.ID)]
			s.mu.Unlock()
			if waits != nil {
				waits <- append(append(json.RawMessage{}, r.Result...), r.Error...)
			}
			continue
		}
		s.handle(r)
	}
}

func (s *server) handle(r request) {
	switch r.Method {
	case "initialize":
		s.result(r, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`)
	case "tools/list":
		s.result(r, s.list(r))
		switch s.mode {
		case ModeDeaf:
			select {}
		case ModeExitLater:
			syscall.Exit(1)
		case ModeChatter:
			go func() {
				for {
					s.line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
				}
			}()
		}
	case "tools/call":
		go s.call(r)
	default:
		s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, r.ID))
	}
}

func (s *server) result(r request, result string) {
	s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result))
}

func (s *server) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.out.WriteString(text + "\n"); err != nil {
		syscall.Exit(1)
	}
}

// effect adds a line to the file of effects, whole even if the process is killed.
func (s *server) effect(line string) {
	if s.effects == "" {
		return
	}
	f, err := os.OpenFile(s.effects, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		syscall.Exit(1)
	}
	if _, err := f.WriteString(line + "\n"); err != nil || f.Close() != nil {
		syscall.Exit(1)
	}
}
