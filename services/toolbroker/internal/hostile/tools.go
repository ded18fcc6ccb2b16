package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// HugeSize is the length of the text that the tool huge answers.
const HugeSize = 318_000

// good are the tools that behave as a list of tools goes; how they behave when
// they are called is in call.
var good = []string{
	"echo", "count", "crash", "crash_early", "fail", "rpc_error", "bytes", "surrogate", "controls", "huge",
	"image", "exotic", "hang", "environment", "secret", "ask", "garbage", "null_result", "descriptors", "pid",
	"ask_midway", "ask_slowly", "ask_everything", "progress",
}

const typed = `{"name":"typed","description":"Takes typed arguments.","inputSchema":{
	"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["path"],"additionalProperties":false,
	"properties":{"path":{"type":"string","maxLength":10},"count":{"type":"integer"},"mode":{"enum":["a","b"]},
		"tree":{"$ref":"#/definitions/node"}},
	"definitions":{"node":{"type":"object","properties":{"left":{"$ref":"#/definitions/node"}},"additionalProperties":false}}}}`

// shape is of tools that say what their structured content is; how it is when they
// are called is in call.
const shape = `"inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"},"under":{"$ref":"#/$defs/n"}},
	"required":["n"],"additionalProperties":false,"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}}`

// malformed are tools each of which is wrong in one way.
var malformed = []string{
	`{"name":"no_schema"}`,
	`{"name":"schema_is_text","inputSchema":"object"}`,
	`{"name":"schema_of_no_object","inputSchema":{"type":"string"}}`,
	`{"name":"bad_type","inputSchema":{"type":"objekt"}}`,
	`{"name":"bad_pattern","inputSchema":{"type":"object","properties":{"a":{"pattern":"("}}}}`,
	`{"name":"dangling_ref","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}}`,
	`{"name":"remote_ref","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/schema.json"}}}}`,
	`{"name":"file_ref","inputSchema":{"type":"object","properties":{"a":{"$ref":"file:///etc/hostname"}}}}`,
	`{"name":"own_metaschema","inputSchema":{"$schema":"http://127.0.0.1:9/meta.json","type":"object"}}`,
	`{"name":"endless_ref","inputSchema":{"type":"object","$ref":"#"}}`,
	`{"name":"name_twice","name":"echo","inputSchema":{"type":"object"}}`,
	`{"name":"case_twice","Name":"echo","inputSchema":{"type":"object"}}`,
	`{"name":5,"inputSchema":{"type":"object"}}`,
	`"not an object"`,
	`null`,
	`{"name":"bad_bytes","description":"` + "\xff" + `","inputSchema":{"type":"object","title":"` + "\xff" + `"}}`,
	`{"name":"odd_fields","title":5,"annotations":[],"description":{"a":1},"inputSchema":{"type":"object"},"outputSchema":{"$ref":"#"}}`,
}

func (s *server) list(r request) string {
	tools := []string{typed, `{"name":"shaped",` + shape + `}`, `{"name":"misshapen",` + shape + `}`}
	for _, name := range good {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"Does %s.\u001b[2J","inputSchema":{"type":"object"}}`, name, name))
	}
	next := ""
	switch s.mode {
	case ModeMalformed:
		tools = append(tools, malformed...)
		deep := strings.Repeat(`{"allOf":[`, 40) + "true" + strings.Repeat("]}", 40)
		tools = append(tools,
			`{"name":"deep_schema","inputSchema":{"type":"object","properties":{"a":`+deep+`}}}`,
			`{"name":"large_schema","inputSchema":{"type":"object","description":"`+strings.Repeat("a", 64<<10)+`"}}`,
			`{"name":"long_description","description":"`+strings.Repeat("é", 100_000)+`","inputSchema":{"type":"object"}}`)
	case ModeEndless:
		next = fmt.Sprintf(`,"nextCursor":"%sx"`, r.Params.Cursor)
	}
	return `{"tools":[` + strings.ReplaceAll(strings.Join(tools, ","), "\n", " ") + `]` + next + `}`
}

func (s *server) call(r request) {
	text := func(t string) { s.result(r, `{"content":[{"type":"text","text":`+t+`}]}`) }
	if result, known := s.asking(r); known {
		s.result(r, result)
		return
	}
	switch r.Params.Name {
	case "echo", "typed":
		text(quote(string(r.Params.Arguments)))
	case "count":
		s.effect("count")
		text(`"counted"`)
	case "crash": // after its effect
		s.effect("crash")
		syscall.Exit(3)
	case "crash_early": // before its effect
		syscall.Exit(3)
	case "fail":
		s.result(r, `{"content":[{"type":"text","text":"no such thing"}],"isError":true}`)
	case "rpc_error":
		s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad arguments for %s"}}`, r.ID, os.Getenv("API_TOKEN")))
	case "bytes":
		text("\"a\xffb\xed\xa0\x80c\"")
	case "surrogate":
		text(`"a\ud800b\udc00c"`)
	case "controls":
		text(`"a\u0000b\u001bc\td"`)
	case "huge":
		text(`"` + strings.Repeat("x", HugeSize) + `"`)
	case "image":
		s.multi(r, `{"content":[{"type":"image","mimeType":"image/png","data":"aGVsbG8="},{"type":"audio","mimeType":"audio/wav","data":"aGVsbG8h"},
			{"type":"resource","resource":{"uri":"file:///a.bin","mimeType":"application/octet-stream","blob":"aGVsbG8="}},
			{"type":"resource","resource":{"uri":"file:///a.txt","mimeType":"text/plain","text":"inside"}},
			{"type":"resource_link","uri":"file:///b.txt","name":"b","mimeType":"text/plain","size":7}]}`)
	case "exotic":
		s.multi(r, `{"content":[{"type":"hologram","depth":3},{"type":"text","text":"seen"},null,"odd",{"type":"text"}],
			"structuredContent":{"id":12345678901234567890,"ratio":1.10,"Key":1,"key":2,"far":1e999}}`)
	case "shaped":
		s.result(r, `{"content":[{"type":"text","text":"seven"}],"structuredContent":{"n":7,"under":{"n":{}}}}`)
	case "misshapen":
		s.result(r, `{"content":[{"type":"text","text":"seven"}],"structuredContent":{"n":"seven"}}`)
	case "hang":
		s.effect("hang")
		select {}
	case "environment":
		text(quote(strings.Join(os.Environ(), "\n")))
	case "secret":
		t := quote("token=" + os.Getenv("API_TOKEN") + ";")
		s.multi(r, `{"content":[{"type":"text","text":`+t+`},{"type":"resource_link","uri":`+t+`,"name":`+t+`},{"type":"image","mimeType":`+t+`,"data":""}],
			"structuredContent":{`+t+`:[`+t+`]}}`)
	case "ask":
		s.result(r, `{"resultType":"input_required","content":[],"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`)
	case "garbage":
		s.effect("garbage")
		s.line("this is no JSON")
	case "null_result":
		s.result(r, `null`)
	case "pid":
		text(quote(fmt.Sprintf("pid %d.", os.Getpid())))
	case "descriptors":
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			syscall.Exit(1)
		}
		var names []string
		for _, e := range entries {
			target, err := os.Readlink("/proc/self/fd/" + e.Name())
			// What the Go runtime of this process opens for itself was not inherited.
			if err == nil && !strings.HasPrefix(target, "anon_inode:") && !strings.HasPrefix(target, "/proc/") && !strings.HasPrefix(target, "/sys/") {
				names = append(names, e.Name()+"="+target)
			}
		}
		text(quote(strings.Join(names, "\n")))
	default:
		s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"unknown tool"}}`, r.ID))
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		syscall.Exit(1)
	}
	return string(b)
}

func ignoreSignals() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGPIPE) }

// multi is result for what is written here over several lines.
func (s *server) multi(r request, result string) {
	s.result(r, strings.NewReplacer("\n", "", "\t", "").Replace(result))
}
