package demomodel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/demomodel"
)

func TestObeysCommands(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		message string
		want    said
	}{
		"say":                 {">>say Hello there", said{text: "Hello there", finish: "stop"}},
		"say twice":           {">>say one\n>>say two", said{text: "one\ntwo", finish: "stop"}},
		"crlf":                {"intro\r\n>>say one\r\n", said{text: "one", finish: "stop"}},
		"only at line begin":  {"do not >>say this\n>>say that", said{text: "that", finish: "stop"}},
		"think":               {">>think hm, so\n>>say yes", said{thought: "hm, so", text: "yes", finish: "stop"}},
		"repeat":              {">>repeat 3 ab c", said{text: "ab c ab c ab c", finish: "stop"}},
		"usage":               {">>usage 12 34\n>>say x", said{text: "x", finish: "stop", in: 12, out: 34}},
		"keeps inner blanks":  {">>say a  b\tü " + strings.Repeat("ß", 400), said{text: "a  b\tü " + strings.Repeat("ß", 400), finish: "stop"}},
		"call by id":          {`>>call fs.read_text_file {"path":"a b.txt"}`, said{calls: []call{{name: "fs_read_text_file", args: `{"path":"a b.txt"}`}}, finish: "tool_calls"}},
		"call by name":        {`>>call fs_list_directory {"path":"."}`, said{calls: []call{{name: "fs_list_directory", args: `{"path":"."}`}}, finish: "tool_calls"}},
		"several calls":       {">>say now\n>>call fs.read_text_file {}\n>>call fs.list_directory {}\n>>say later", said{text: "now", calls: []call{{name: "fs_read_text_file", args: "{}"}, {name: "fs_list_directory", args: "{}"}}, finish: "tool_calls"}},
		"same call twice":     {">>call fs.list_directory {}\n>>call fs.list_directory {}", said{calls: []call{{name: "fs_list_directory", args: "{}"}, {name: "fs_list_directory", args: "{}"}}, finish: "tool_calls"}},
		"not offered":         {">>call mail.send {}\n>>say so", said{text: "I was not offered a tool mail.send, so I did not call it.\nso", finish: "stop"}},
		"one of two offered":  {">>call mail.send {}\n>>call fs.list_directory {}", said{text: "I was not offered a tool mail.send, so I did not call it.", calls: []call{{name: "fs_list_directory", args: "{}"}}, finish: "tool_calls"}},
		"unknown command":     {"hi\n>>sya x", said{text: "I cannot obey line 2: the commands are >>call, >>bash, >>say, >>think, >>repeat, >>sleep, >>usage, >>error, >>reset and >>truncate.", finish: "stop"}},
		"status not known":    {">>error 500x\n>>say x", said{text: "I cannot obey line 1: >>error takes a status of 400 to 599.\nx", finish: "stop"}},
		"sleep of no length":  {">>sleep 0\n>>say x", said{text: "x", finish: "stop"}},
		"arguments not JSON":  {">>call fs.list_directory {", said{text: "I cannot obey line 1: >>call takes a tool id and a JSON object.", finish: "stop"}},
		"arguments no object": {">>call fs.list_directory []", said{text: "I cannot obey line 1: >>call takes a tool id and a JSON object.", finish: "stop"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, user(tt.message))
			if got.text != tt.want.text || got.thought != tt.want.thought || got.finish != tt.want.finish {
				t.Errorf("got %q, thought %q, %s\nwant %q, thought %q, %s", got.text, got.thought, got.finish, tt.want.text, tt.want.thought, tt.want.finish)
			}
			if tt.want.in != 0 && (got.in != tt.want.in || got.out != tt.want.out) {
				t.Errorf("usage %d/%d, want %d/%d", got.in, got.out, tt.want.in, tt.want.out)
			}
			compareCalls(t, got.calls, tt.want.calls)
		})
	}
}

func compareCalls(t *testing.T, got, want []call) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("calls %+v, want %+v", got, want)
	}
	ids := make(map[string]bool)
	for i, c := range got {
		if c.name != want[i].name || c.args != want[i].args {
			t.Errorf("call %d is %+v, want %+v", i, c, want[i])
		}
		ids[c.id] = true
	}
	if len(ids) != len(got) {
		t.Errorf("calls share an id: %+v", got)
	}
}

func TestSaysWhatToolsReturnedAndDoesNotCallAgain(t *testing.T) {
	t.Parallel()
	script := user(">>call fs.read_text_file {\"path\":\"note.txt\"}\n>>call fs.list_directory {}\n>>say That is all.")
	first := ask(t, script)
	if len(first.calls) != 2 || first.text != "" {
		t.Fatalf("first answer: %+v", first)
	}
	second := ask(t, script, called(first.calls[0]), called(first.calls[1]),
		result(first.calls[0].id, "first line\nrandom 4711\n"), result(first.calls[1].id, "note.txt"))
	want := "fs_read_text_file returned: first line\nrandom 4711\n\nfs_list_directory returned: note.txt\nThat is all."
	if second.text != want || len(second.calls) != 0 || second.finish != "stop" {
		t.Errorf("second answer: %+v, want %q", second, want)
	}
	if second.id == first.id {
		t.Error("two answers of one conversation have the same id")
	}
}

func TestCallIDsDifferFromTurnToTurn(t *testing.T) {
	t.Parallel()
	script := user(">>call fs.list_directory {}")
	first := ask(t, script)
	again := ask(t, script, called(first.calls[0]), result(first.calls[0].id, "x"), msg{"role": "assistant", "content": "x"}, script)
	if first.calls[0].id == again.calls[0].id {
		t.Error("the same call in a later turn has the id of the earlier one")
	}
}

func TestRemembersOnlyTheMessagesItWasSent(t *testing.T) {
	t.Parallel()
	call := call{id: "call_1", name: "fs_read_text_file", args: "{}"}
	long := strings.Repeat("filler line\n", 5000) + "\nrandom line 4711\n\n"
	got := ask(t, user("Read the note, please."), called(call), result("call_1", long),
		msg{"role": "assistant", "content": "done"}, user("What do you remember?"))
	for _, want := range []string{"Read the note, please.", "fs_read_text_file returned", "random line 4711"} {
		if !strings.Contains(got.text, want) {
			t.Errorf("%q does not name %q", got.text, want)
		}
	}
	if strings.Contains(got.text, "\n") || len(got.text) > 4<<10 {
		t.Errorf("not one bounded sentence: %d bytes", len(got.text))
	}
	fresh := ask(t, user("What do you remember?"))
	if fresh.text != "I remember nothing from before this message." {
		t.Errorf("a conversation without a past: %q", fresh.text)
	}
}

func TestResultsOfCallsWhoseIDsComeAgain(t *testing.T) {
	t.Parallel()
	list := call{id: "call-1", name: "fs_list_directory", args: "{}"}
	read := call{id: "call-1", name: "fs_read_text_file", args: "{}"}
	got := ask(t, user("one"), called(list), result("call-1", "a"), msg{"role": "assistant", "content": "ok"},
		user("two"), called(read), result("call-1", "b"), msg{"role": "assistant", "content": "ok"}, user("three"))
	if want := "I remember from this conversation: you said “one”; fs_list_directory returned “a”; you said “two”; fs_read_text_file returned “b”."; got.text != want {
		t.Errorf("got %q, want %q", got.text, want)
	}
}

// A turn that failed leaves its user message behind; its commands were for then.
func TestOldCommandsAreNotObeyed(t *testing.T) {
	t.Parallel()
	got := ask(t, user(">>call fs.list_directory {}"), user("hello"))
	if len(got.calls) != 0 || !strings.Contains(got.text, "I remember from this conversation: you said “>>call fs.list_directory {}”.") {
		t.Errorf("got %+v", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var messages []msg
	for n := range 100 {
		messages = append(messages, user(fmt.Sprintf("message %d %s", n, strings.Repeat("ü", 1000))))
	}
	got := ask(t, messages...)
	if len(got.text) > 16<<10 || !strings.Contains(got.text, "(and 83 older things)") || !strings.Contains(got.text, "message 98") {
		t.Errorf("%d bytes: %.300s", len(got.text), got.text)
	}
}

func TestContentParts(t *testing.T) {
	t.Parallel()
	parts := []any{
		map[string]any{"type": "text", "text": "look"},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,AA"}},
		map[string]any{"type": "text", "text": ">>say seen"},
	}
	if got := ask(t, msg{"role": "user", "content": parts}); got.text != "seen" {
		t.Errorf("got %q", got.text)
	}
}

func TestStreamsWordByWord(t *testing.T) {
	t.Parallel()
	got := ask(t, user(">>repeat 1000 word"))
	if got.chunks < 1000 || len(strings.Fields(got.text)) != 1000 {
		t.Errorf("%d chunks for %d words", got.chunks, len(strings.Fields(got.text)))
	}
}

func TestUsageIsLeftOutUnlessAskedFor(t *testing.T) {
	t.Parallel()
	got := post(t, serve(t).URL, `{"model":"m","stream":true,"messages":[{"role":"user","content":">>say x"}]}`)
	if got.err != nil || strings.Contains(got.body, "usage") || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("got %+v", got)
	}
}

func TestResetCutsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			got := post(t, serve(t).URL, body(t, stream, user(">>say part\n>>reset\n>>say never")))
			if !errors.Is(got.err, io.ErrUnexpectedEOF) {
				t.Fatalf("the reader saw no broken answer: %+v", got)
			}
			if got.status != http.StatusOK || got.body == "" || strings.Contains(got.body, "never") {
				t.Errorf("got %+v", got)
			}
			if stream && !strings.Contains(got.body, `"part"`) {
				t.Errorf("the part before the break is missing: %q", got.body)
			}
		})
	}
}

func TestErrorStandsForTheAnswer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status     int
		retryAfter string
	}{
		">>error 400":                    {400, ""},
		">>say lost\n>>error 500":        {500, ""},
		">>think lost\n>>error 429":      {429, "1"},
		">>error 503":                    {503, "1"},
		">>error 599\n>>reset":           {599, ""},
		">>call no.tool {}\n>>error 401": {401, ""},
	}
	for script, tt := range tests {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			for _, stream := range []bool{true, false} {
				got := post(t, serve(t).URL, body(t, stream, user(script)))
				if got.err != nil || got.status != tt.status || got.header.Get("Retry-After") != tt.retryAfter || !strings.Contains(got.body, `"error":{"message":`) {
					t.Errorf("stream %v: %+v", stream, got)
				}
			}
		})
	}
}

func TestRefusesWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body   string
		status int
	}{
		"empty":          {"", 400},
		"not JSON":       {"{", 400},
		"no messages":    {`{"model":"m"}`, 400},
		"wrong type":     {`{"model":1,"messages":[]}`, 400},
		"content number": {`{"messages":[{"role":"user","content":1}]}`, 400},
		"too many tools": {`{"messages":[{"role":"user","content":"x"}],"tools":[{}` + strings.Repeat(",{}", 1024) + `]}`, 400},
		"too large":      {`{"messages":"` + strings.Repeat("x", 4<<20) + `"}`, 413},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := post(t, serve(t).URL, tt.body)
			if got.err != nil || got.status != tt.status || !strings.Contains(got.body, `"type":"invalid_request_error"`) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestServesOneRoute(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, demomodel.Path, http.StatusMethodNotAllowed},
		{http.MethodPost, "/v1/models", http.StatusNotFound},
		{http.MethodPost, "/", http.StatusNotFound},
	}
	for _, tt := range tests {
		rec := httptest.NewRecorder()
		demomodel.New().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader("{}")))
		if rec.Code != tt.status {
			t.Errorf("%s %s: %d", tt.method, tt.path, rec.Code)
		}
	}
}

func TestSleepTakesItsTimeAndEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{"in a stream": ">>sleep 60000\n>>say late", "before an error": ">>sleep 60000\n>>error 500"}
	for name, script := range scripts {
		payload := body(t, true, user(script))
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				demomodel.New().ServeHTTP(httptest.NewRecorder(), request(t.Context(), payload))
				if waited := time.Since(began); waited != time.Minute {
					t.Errorf("waited %s, not a minute", waited)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				defer func() {
					if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // the value that net/http compares
						t.Errorf("an answer whose caller is gone ended with %v", v)
					}
					if waited := time.Since(began); waited != time.Second {
						t.Errorf("slept on for %s after its caller had gone", waited)
					}
				}()
				demomodel.New().ServeHTTP(httptest.NewRecorder(), request(ctx, payload))
			})
		})
	}
}

func request(ctx context.Context, body string) *http.Request {
	return httptest.NewRequestWithContext(ctx, http.MethodPost, demomodel.Path, strings.NewReader(body))
}
