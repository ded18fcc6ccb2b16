package event_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

func TestSanitizeText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ü\t\r\n":            "plain ü\t\r\n",
		"a\x00b\x1bc\x7f":          "a\ufffdb\ufffdc\x7f",
		"a\xffb\xc3":               "a\ufffdb\ufffd",
		"\xed\xa0\x80":             "\ufffd\ufffd\ufffd",
		"already \ufffd and 😀":     "already \ufffd and 😀",
		strings.Repeat("\x01", 3):  strings.Repeat("\ufffd", 3),
		"":                         "",
		"a\xe2\x80\xa8 separator ": "a\u2028 separator ",
	} {
		if got := event.SanitizeText(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}

func TestTruncateCutsBetweenRunes(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]string{-1: "", 0: "", 1: "a", 2: "a", 3: "aü", 4: "aü", 6: "aü", 7: "aü😀", 99: "aü😀"} {
		if got := event.Truncate("aü😀", most); got != want {
			t.Errorf("cut at %d: %q, not %q", most, got, want)
		}
	}
}

func TestProjections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		json bool
		in   string
		most int
		want event.Value
		cut  bool
	}{
		"text that fits":              {in: "a<b>\"\n", most: 20, want: `"a<b>\"\n"`},
		"text exactly as long":        {in: "abc", most: 5, want: `"abc"`},
		"text one too long":           {in: "abcd", most: 5, want: `"abc"`, cut: true},
		"text cut before an escape":   {in: "abc\n", most: 6, want: `"abc"`, cut: true},
		"text cut before a rune":      {in: "abü", most: 5, want: `"ab"`, cut: true},
		"text with forbidden things":  {in: "a\x00\xff", most: 20, want: "\"a\ufffd\ufffd\""},
		"JSON that fits":              {json: true, in: `{ "a": [1, "x y"] }`, most: 20, want: `{"a":[1,"x y"]}`},
		"JSON with case variants":     {json: true, in: `{"id":1,"ID":2}`, most: 20, want: `{"id":1,"ID":2}`},
		"JSON with half a pair":       {json: true, in: `["\ud83d","\ud83d\ude00","\udc00x"]`, most: 80, want: `["\ufffd","\ud83d\ude00","\ufffdx"]`},
		"JSON with controls":          {json: true, in: "[\"\\u0000\\b\\n\\\\b\xff\"]", most: 80, want: `["\ufffd\ufffd\n\\b\ufffd"]`},
		"JSON with a key twice":       {json: true, in: `{"a":1,"a":2}`, most: 40, want: `"{\"a\":1,\"a\":2}"`},
		"half an escape":              {json: true, in: "\"a\\", most: 20, want: `"\"a\\"`},
		"an escape that is none":      {json: true, in: `"\u12"`, most: 20, want: `"\"\\u12\""`},
		"JSON too large":              {json: true, in: `{"a":"bcdef"}`, most: 9, want: `"{\"a\":"`, cut: true},
		"no JSON":                     {json: true, in: `hello`, most: 20, want: `"hello"`},
		"JSON too deep becomes text":  {json: true, in: strings.Repeat("[", 33) + strings.Repeat("]", 33), most: 100, want: event.Value(`"` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `"`)},
		"a number that nothing holds": {json: true, in: `1e999`, most: 20, want: `"1e999"`},
	} {
		project := event.ProjectText
		if c.json {
			project = func(s string, most int) (event.Value, bool) { return event.ProjectJSON([]byte(s), most) }
		}
		if got, cut := project(c.in, c.most); got != c.want || cut != c.cut {
			t.Errorf("%s: %s (cut %t), not %s", name, got, cut, c.want)
		}
	}
}
