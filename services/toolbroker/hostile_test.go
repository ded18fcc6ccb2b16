package toolbroker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// One byte that was not UTF-8 ended the connection (mcp-adapter 195), and 318,000
// characters came back from one call (pi-mcp-adapter 160).
func TestOddResultsStayWithinTheRulesOfAnEvent(t *testing.T) {
	s := newSession(t)
	for tool, want := range map[string]string{
		"x.bytes":     `{"content":[{"type":"text","text":"a�b���c"}]}`,
		"x.surrogate": `{"content":[{"type":"text","text":"a�b�c"}]}`,
		"x.controls":  `{"content":[{"type":"text","text":"a�b�c\td"}]}`,
		"x.image": `{"content":[{"type":"image","mime_type":"image/png","size":5},{"type":"audio","mime_type":"audio/wav","size":6},` +
			`{"type":"resource","mime_type":"application/octet-stream","size":5,"uri":"file:///a.bin"},` +
			`{"type":"resource","text":"inside","mime_type":"text/plain","uri":"file:///a.txt"},` +
			`{"type":"resource_link","mime_type":"text/plain","size":7,"uri":"file:///b.txt","name":"b"}]}`,
		"x.exotic":    `{"content":[{"type":"unsupported","name":"hologram"},{"type":"text","text":"seen"},{"type":"unsupported"},{"type":"unsupported"},{"type":"text","text":""}],"truncated":true}`,
		"x.shaped":    `{"content":[{"type":"text","text":"seven"}],"structuredContent":{"n":7,"under":{"n":{}}}}`,
		"x.misshapen": `{"content":[{"type":"text","text":"[The structured content of this result does not fit the schema that the tool's server gives for it, and is left out.]"},{"type":"text","text":"seven"}]}`,
		"x.huge":      "",
	} {
		res, err := s.call(t, tool, `{}`)
		if err != nil || want != "" && string(res.GetResult()) != want {
			t.Errorf("%s: %.300s %v, want %s", tool, res.GetResult(), err, want)
		}
		if err := strictjson.Check(res.GetResult(), strictjson.Options{MaxBytes: event.MaxResultBytes, MaxDepth: event.MaxArgumentsDepth, AllowCaseVariants: true}); err != nil {
			t.Errorf("%s: %v", tool, err)
		}
		if tool == "x.huge" && (!res.GetTruncated() || len(res.GetResult()) < event.MaxResultBytes-1024) {
			t.Errorf("%s: %d bytes, truncated %v", tool, len(res.GetResult()), res.GetTruncated())
		}
	}
	if got := textOf(s.call(t, "x.echo", `{}`)); got != `{}` {
		t.Errorf("afterwards: %s", got)
	}
}

// The tool ran, the transport dropped, and the tool ran again (smg 2441): not
// here, neither by itself nor when the same key comes again.
func TestACrashInMidCallIsNeverRepeated(t *testing.T) {
	s := newSession(t)
	for _, tool := range []string{"x.crash", "x.garbage", "x.crash_early"} {
		before := len(s.count(t))
		e := s.stand.Envelope()
		_, err := s.callAs(t.Context(), e, tool, `{}`)
		wantCode(t, err, fault.ToolOutcomeUnknown)
		_, err = s.callAs(t.Context(), e, tool, `{}`) // while the server is away
		wantCode(t, err, fault.ToolOutcomeUnknown)
		s.comeBack(t)
		_, err = s.callAs(t.Context(), e, tool, `{}`) // and when it is back
		wantCode(t, err, fault.ToolOutcomeUnknown)
		if effects := s.count(t); len(effects) > before+1 {
			t.Errorf("%s: effects %v", tool, effects)
		}
	}
	unknown := 0
	for _, r := range s.stand.Rows(t) {
		if r.State == "dispatched" {
			unknown++
		}
	}
	if unknown != 3 {
		t.Errorf("rows: %+v", s.stand.Rows(t))
	}
}

// What the operator marked read-only may run again after that.
func TestARepeatableToolMayRunAgain(t *testing.T) {
	s := newSession(t)
	e := s.stand.Envelope()
	_, err := s.callAs(t.Context(), e, "r.hang", `{}`)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	_, err = s.callAs(t.Context(), e, "r.hang", `{}`)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	hung := 0
	for _, line := range s.count(t) {
		if line == "hang" {
			hung++
		}
	}
	if hung != 2 {
		t.Errorf("effects: %v", s.count(t))
	}
}

// A server that is away is no reason to burn the key: nothing was sent, and the
// same request goes through when the server is back.
func TestAKeySurvivesAServerThatIsAway(t *testing.T) {
	s := newSession(t)
	_, err := s.call(t, "x.crash_early", `{}`)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	e := s.stand.Envelope()
	var refused []fault.Code
	wait(t, func() bool {
		_, err := s.callAs(t.Context(), e, "x.count", `{}`)
		if err != nil {
			refused = append(refused, fault.CodeOf(err))
		}
		return err == nil || len(refused) > 7
	})
	for _, code := range refused {
		if code != fault.ToolUnavailable {
			t.Errorf("refused with %q", code)
		}
	}
	if len(refused) <= 7 && !slices.Equal(s.count(t), []string{"count"}) {
		t.Errorf("effects: %v", s.count(t))
	}
}

// A blocked call ends with its context (mcp-go 779), and the server is told.
func TestABlockedCallEnds(t *testing.T) {
	s := newSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.callAs(ctx, s.stand.Envelope(), "x.hang", `{}`)
		ended <- err
	}()
	wait(t, func() bool { return len(s.count(t)) == 1 })
	cancel()
	wantCode(t, <-ended, fault.Cancelled)
	wait(t, func() bool { return strings.Join(s.count(t), " ") == "hang cancelled" })

	e := s.stand.Envelope()
	e.Deadline = time.Now().Add(time.Second)
	begin := time.Now()
	_, err := s.callAs(t.Context(), e, "x.hang", `{}`)
	if err == nil || time.Since(begin) > 15*time.Second {
		t.Errorf("after the deadline of the envelope: %v after %v", err, time.Since(begin))
	}
}

// The credential of a server is in no answer, no error and no line of the log,
// and the server has no other.
func TestTheCredentialIsNowhere(t *testing.T) {
	s := newSession(t)
	for _, tool := range []string{"x.secret", "x.environment", "x.rpc_error"} {
		res, err := s.call(t, tool, `{}`)
		must(t, err)
		if strings.Contains(string(res.GetResult()), canary) || !strings.Contains(string(res.GetResult()), "[redacted]") {
			t.Errorf("%s: %s", tool, res.GetResult())
		}
		for _, r := range s.stand.Rows(t) {
			if strings.Contains(string(r.Outcome), canary) {
				t.Errorf("%s: it is in the ledger", tool)
			}
		}
	}
	if got := textOf(s.call(t, "x.environment", `{}`)); got != "API_TOKEN=[redacted]" {
		t.Errorf("environment of the server: %s", got)
	}
	if strings.Contains(s.log.String(), canary) {
		t.Error("it is in the log")
	}
}

// Arguments and results are the caller's: the log has digests of them.
func TestTheLogHasNoArgumentsAndNoResults(t *testing.T) {
	s := newSession(t)
	const secret = "what-the-user-wrote-71b2"
	_, err := s.call(t, "x.echo", `{"a":"`+secret+`"}`)
	must(t, err)
	_, err = s.call(t, "x.typed", `{"path":"`+secret+`"}`)
	wantCode(t, err, fault.ToolArgumentsInvalid)
	_, err = s.call(t, "x.crash", `{"a":"`+secret+`"}`)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	log := s.log.String()
	if strings.Contains(log, secret) {
		t.Error("what the user wrote is in the log")
	}
	if strings.Count(log, `"msg":"tool call"`) != 3 || !strings.Contains(log, `"arguments":"sha256:`) || !strings.Contains(log, `"code":"tool_outcome_unknown"`) {
		t.Error("not every decision is in the log")
	}
}

// Keys that differ in case only smuggled another method past the authorizer
// (CVE-2026-27896).
func TestArgumentsAreDecodedStrictly(t *testing.T) {
	s := newSession(t)
	for args, detail := range map[string]string{
		`{"path":"a","path":"b"}`:            "arguments/path: key given twice",
		`{"path":"a","Path":"b"}`:            "arguments/Path: keys that differ only in case",
		`{"path":"a","count":{"x":1,"X":2}}`: "arguments/count/X: keys that differ only in case",
		`{"path":"a"} {}`:                    "arguments: data after the value",
		`[]`:                                 "arguments: value of the wrong type",
		`null`:                               "arguments: value of the wrong type",
		`{"path":"a\u0000"}`:                 "arguments/path: control character in a string",
		`{"path":"\ud800"}`:                  "arguments/path: half a surrogate pair",
		"{\"path\":\"\xff\"}":                "arguments/path: not valid UTF-8",
		`{"path":"a","count":1e999}`:         "arguments/count: number out of range",
		`{"path":"a","count":1e-999999}`:     "arguments/count: number out of range",
		`{"path":`:                           "arguments/path: not valid JSON",
		`{"path":"hunter2 hunter2"}`:         "arguments/path: maxLength",
		`{"path":5}`:                         "arguments/path: type: string",
		`{}`:                                 "arguments: required: path",
		`{"path":"a","extra":"hunter2"}`:     "arguments: additionalProperties: extra",
		`{"path":"a","tree":` + strings.Repeat(`{"left":`, 32) + `{}` + strings.Repeat(`}`, 32) + `}`: "nested deeper than allowed",
	} {
		_, err := s.call(t, "x.typed", args)
		f := fault.From(err, "")
		if f == nil || f.Code() != fault.ToolArgumentsInvalid || !strings.Contains(f.Detail(), detail) || strings.Contains(f.Detail(), "hunter2") {
			t.Errorf("%.60s: %v, want %q", args, err, detail)
		}
	}
	if rows := s.stand.Rows(t); len(rows) != 0 {
		t.Errorf("rows: %+v", rows)
	}
	sent := `{"count":12345678901234567890,"path":"é<&>"}`
	if got := textOf(s.call(t, "x.typed", sent)); got != `{"count":12345678901234567890,"path":"é\u003c\u0026\u003e"}` {
		t.Errorf("the tool got %s", got)
	}
	_, err := s.call(t, "x.echo", `{"a":"`+strings.Repeat("x", 256<<10)+`"}`)
	wantCode(t, err, fault.InvalidRequest) // the schema of the message has the bound
	_, err = s.call(t, "x.echo", `{"a":"`+strings.Repeat("x", 400<<10)+`"}`)
	wantCode(t, err, fault.RequestTooLarge)
}

func TestUnknownToolIDsAreRefused(t *testing.T) {
	s := newSession(t)
	s.allowed = []string{"x.nothing", "nothing.at_all", "x.echo"}
	for _, id := range []string{"x.nothing", "nothing.at_all"} {
		_, err := s.call(t, id, `{}`)
		wantCode(t, err, fault.ToolUnavailable)
	}
	for _, id := range []string{"", "x", "x.", ".echo", "x.echo\n", "x.é", "x echo", strings.Repeat("x", 300)} {
		_, err := s.call(t, id, `{}`)
		wantCode(t, err, fault.InvalidRequest)
	}
}
