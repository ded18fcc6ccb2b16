package project_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/toolbroker/internal/project"
)

const token = "s3cr3t+value/with=signs"

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ raw, want string }{
		"text":           {`{"content":[{"type":"text","text":"a <b> & é"}]}`, `{"content":[{"type":"text","text":"a <b> & é"}]}`},
		"nothing":        {`{"content":[]}`, `{"content":[]}`},
		"no content":     {`{}`, `{"content":[]}`},
		"error":          {`{"content":[{"type":"text","text":"no"}],"isError":true}`, `{"content":[{"type":"text","text":"no"}],"isError":true}`},
		"another case":   {`{"content":[],"IsError":true,"ISERROR":true,"Content":[{"type":"text","text":"x"}]}`, `{"content":[]}`},
		"one content":    {`{"content":{"type":"text","text":"a"}}`, `{"content":[{"type":"text","text":"a"}]}`},
		"bytes":          {"{\"content\":[{\"type\":\"text\",\"text\":\"a\xffb\"}]}", `{"content":[{"type":"text","text":"a�b"}]}`},
		"surrogates":     {`{"content":[{"type":"text","text":"a\ud800b\udc00c\ud83d\ude00"}]}`, `{"content":[{"type":"text","text":"a�b�c😀"}]}`},
		"controls":       {`{"content":[{"type":"text","text":"a\u0000b\u001b[2Jc\td\n"}]}`, `{"content":[{"type":"text","text":"a�b�[2Jc\td\n"}]}`},
		"image":          {`{"content":[{"type":"image","mimeType":"image/png","data":"aGVsbG8="}]}`, `{"content":[{"type":"image","mime_type":"image/png","size":5}]}`},
		"resource text":  {`{"content":[{"type":"resource","resource":{"uri":"f:a","text":"in"}}]}`, `{"content":[{"type":"resource","text":"in","uri":"f:a"}]}`},
		"resource blob":  {`{"content":[{"type":"resource","resource":{"uri":"f:a","blob":"aGVsbG8="}}]}`, `{"content":[{"type":"resource","size":5,"uri":"f:a"}]}`},
		"resource link":  {`{"content":[{"type":"resource_link","uri":"f:a","name":"n","size":7}]}`, `{"content":[{"type":"resource_link","size":7,"uri":"f:a","name":"n"}]}`},
		"unknown types":  {`{"content":[{"type":"hologram"},null,"odd",{"type":5}]}`, `{"content":[{"type":"unsupported","name":"hologram"},{"type":"unsupported"},{"type":"unsupported"},{"type":"unsupported"}]}`},
		"structured":     {`{"content":[],"structuredContent":{"id":12345678901234567890,"r":1.10,"a":1,"A":2}}`, `{"content":[],"structuredContent":{"A":2,"a":1,"id":12345678901234567890,"r":1.10}}`},
		"structured too": {`{"content":[{"type":"text","text":"t"}],"structuredContent":[1]}`, `{"content":[{"type":"text","text":"t"}],"structuredContent":[1]}`},
		"infinite": {
			`{"content":[{"type":"text","text":"t"}],"structuredContent":{"far":1e999}}`,
			`{"content":[{"type":"text","text":"t"}],"truncated":true}`,
		},
		"infinite alone": {
			`{"structuredContent":{"far":1e999}}`,
			`{"content":[{"type":"text","text":"{\"far\":1e999}"}],"truncated":true}`,
		},
		"bad keys":  {`{"structuredContent":{"a\u0000":"\ud800"}}`, `{"content":[],"structuredContent":{"a�":"�"}}`},
		"null":      {`null`, failure("The tool's server gave a result in no form of the protocol.")},
		"list":      {`[]`, failure("The tool's server gave a result in no form of the protocol.")},
		"no JSON":   {`{`, failure("The tool's server gave a result in no form of the protocol.")},
		"empty":     {``, failure("The tool's server gave a result in no form of the protocol.")},
		"asks":      {`{"resultType":"input_required","content":[{"type":"text","text":"x"}]}`, failure("The tool asks for input from the user, which it cannot be given here.")},
		"asks also": {`{"inputRequests":{"a":{}}}`, failure("The tool asks for input from the user, which it cannot be given here.")},
	} {
		got := project.Answer([]byte(c.raw), project.Redactor{})
		if string(got.JSON) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got.JSON, c.want)
		}
		check(t, got)
	}
}

func failure(text string) string {
	return `{"content":[{"type":"text","text":"` + text + `"}],"isError":true}`
}

// check holds every result to the rules of an event.
func check(t *testing.T, r project.Result) {
	t.Helper()
	err := strictjson.Check(r.JSON, strictjson.Options{MaxBytes: project.MaxBytes, MaxDepth: event.MaxArgumentsDepth, AllowCaseVariants: true})
	if err != nil {
		t.Errorf("%v in %.200s", err, r.JSON)
	}
	var doc struct {
		Content   []json.RawMessage `json:"content"`
		IsError   bool              `json:"isError"`
		Truncated bool              `json:"truncated"`
	}
	if err := json.Unmarshal(r.JSON, &doc); err != nil || doc.Content == nil || doc.IsError != r.IsError || doc.Truncated != r.Truncated {
		t.Errorf("%+v says otherwise than %.200s (%v)", r, r.JSON, err)
	}
}

// 318,000 characters came back from one call (pi-mcp-adapter 160).
func TestHugeResultsAreCutAtARune(t *testing.T) {
	t.Parallel()
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for name, raw := range map[string]string{
		"one text":             `{"content":[{"type":"text","text":` + quote(strings.Repeat("x", 318_000)) + `}]}`,
		"two-byte runes":       `{"content":[{"type":"text","text":` + quote(strings.Repeat("é", 318_000)) + `}]}`,
		"quotation marks":      `{"content":[{"type":"text","text":` + quote(strings.Repeat(`"`, 318_000)) + `}]}`,
		"line separators":      `{"content":[{"type":"text","text":` + quote(strings.Repeat("\u2028", 50_000)) + `}]}`,
		"many texts":           `{"content":[` + strings.Repeat(`{"type":"text","text":"`+strings.Repeat("y", 1000)+`"},`, 200) + `{"type":"text","text":"last"}]}`,
		"many small":           `{"content":[` + strings.Repeat(`{"type":"text","text":""},`, 5000) + `{"type":"text","text":"last"}]}`,
		"structured":           `{"structuredContent":{"a":` + quote(strings.Repeat("x", 318_000)) + `}}`,
		"text and the same":    `{"content":[{"type":"text","text":` + quote(strings.Repeat("x", 60_000)) + `}],"structuredContent":{"content":` + quote(strings.Repeat("x", 60_000)) + `}}`,
		"long URI":             `{"content":[{"type":"resource_link","uri":` + quote(strings.Repeat("u", 318_000)) + `},{"type":"text","text":` + quote(strings.Repeat("x", 70_000)) + `}]}`,
		"deep":                 `{"structuredContent":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
		"image between":        `{"content":[{"type":"image","data":"` + strings.Repeat("a", 300_000) + `"},{"type":"text","text":` + quote(strings.Repeat("x", 318_000)) + `}]}`,
		"resource of a text":   `{"content":[{"type":"resource","resource":{"uri":"u","text":` + quote(strings.Repeat("x", 318_000)) + `}}]}`,
		"text that is too odd": `{"content":[{"type":"text","text":` + quote(strings.Repeat("\x00", 100_000)) + `}]}`,
	} {
		got := project.Answer([]byte(raw), project.Redactor{})
		check(t, got)
		if !got.Truncated || !utf8.Valid(got.JSON) {
			t.Errorf("%s: truncated %v, %d bytes", name, got.Truncated, len(got.JSON))
		}
		if (name == "one text" || name == "many texts") && len(got.JSON) < project.MaxBytes-2048 {
			t.Errorf("%s: only %d bytes are left", name, len(got.JSON))
		}
	}
}

func TestTheCredentialIsCutOut(t *testing.T) {
	t.Parallel()
	r := project.NewRedactor(token)
	raw, err := json.Marshal(map[string]any{
		"content": []any{
			map[string]any{"type": "text", "text": "Authorization: Bearer " + token + "; again " + token},
			map[string]any{"type": "text", "text": "https://x/?token=s3cr3t%2Bvalue%2Fwith%3Dsigns&b=czNjcjN0K3ZhbHVlL3dpdGg9c2lnbnM="},
			map[string]any{"type": "resource_link", "uri": "x:" + token, "name": token, "title": token, "description": token, "mimeType": token},
			map[string]any{"type": "resource", "resource": map[string]any{"uri": token, "text": token, "mimeType": token}},
			map[string]any{"type": token},
		},
		"structuredContent": map[string]any{token: []any{token, map[string]any{"a": "x" + token}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]project.Result{
		"answer":  project.Answer(raw, r),
		"error":   project.RPCError(-32602, "cannot use "+token, r),
		"failure": project.Failure(token, r),
		"cut":     project.Answer([]byte(`{"content":[{"type":"text","text":"`+strings.Repeat("x", project.MaxBytes-180)+token+`"}]}`), r),
	} {
		check(t, got)
		for _, part := range []string{token, token[:10], "s3cr3t%2B", "czNjcjN0"} {
			if strings.Contains(string(got.JSON), part) {
				t.Errorf("%s: %q is in %s", name, part, got.JSON)
			}
		}
		if !strings.Contains(string(got.JSON), "[redacted]") && name != "cut" {
			t.Errorf("%s: nothing was cut out of %s", name, got.JSON)
		}
	}
}

func FuzzNoAnswerBreaksAnEvent(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"a\ud800"}],"structuredContent":{"a":1e5},"isError":true}`))
	f.Add([]byte(`{"content":[{"type":"image","data":"aa=="},{"type":"resource","resource":{"text":"t"}}]}`))
	f.Add([]byte("{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		check(t, project.Answer(raw, project.NewRedactor(token)))
	})
}
