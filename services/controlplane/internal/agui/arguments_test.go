package agui

import (
	"encoding/json"
	"testing"
)

func TestStreamedArgumentsAreCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, taken, rest string }{
		{``, ``, `{}`},
		{` `, ` `, `{}`},
		{`[1]`, ``, `{}`},
		{`x`, ``, `{}`},
		{`{`, `{`, `}`},
		{`{}`, `{}`, ``},
		{`{} `, `{} `, ``},
		{`{}{`, `{}`, ``},
		{`{,`, `{`, `}`},
		{`{"`, `{"`, `":null}`},
		{`{"a\`, `{"a\`, `\"` + `:null}`},
		{`{"a"`, `{"a"`, `:null}`},
		{`{"a":`, `{"a":`, `null}`},
		{`{"a":1,`, `{"a":1,`, `"":null}`},
		{`{"a":1,}`, `{"a":1,`, `"":null}`},
		{`{"a":[`, `{"a":[`, `]}`},
		{`{"a":[1,`, `{"a":[1,`, `null]}`},
		{`{"a":[1}`, `{"a":[1`, `]}`},
		{`{"a":tr`, `{"a":tr`, `ue}`},
		{`{"a":tru3`, `{"a":tru`, `e}`},
		{`{"a":f`, `{"a":f`, `alse}`},
		{`{"a":n`, `{"a":n`, `ull}`},
		{`{"a":"\u12`, `{"a":"\u12`, `00"}`},
		{`{"a":"\uD83D`, `{"a":"\uD83D`, `"}`},
		{`{"a":"\x`, `{"a":"\`, `\"}`},
		{"{\"a\":\"\n", `{"a":"`, `"}`},
		{`{"a":-`, `{"a":-`, `0}`},
		{`{"a":-0`, `{"a":-0`, `}`},
		{`{"a":01`, `{"a":0`, `}`},
		{`{"a":1.`, `{"a":1.`, `0}`},
		{`{"a":1.5e`, `{"a":1.5e`, `0}`},
		{`{"a":1E-`, `{"a":1E-`, `0}`},
		{`{"a":1e5.`, `{"a":1e5`, `}`},
		{`{"a":{"b":[[{"c":"d`, `{"a":{"b":[[{"c":"d`, `"}]]}}`},
	} {
		var p prefix
		taken := ""
		for _, r := range c.text {
			taken += p.take(string(r))
		}
		if rest := p.rest(); taken != c.taken || rest != c.rest {
			t.Errorf("%s: %s and %s", c.text, taken, rest)
		}
		if !json.Valid([]byte(c.taken + c.rest)) {
			t.Errorf("%s%s is not JSON", c.taken, c.rest)
		}
	}
}

// FuzzArguments: whatever streams in, what a client holds in the end is an
// object; what is one is passed on whole.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e+3,"b\n\u00e9",true,null,{}]}`, `{"a":"\ud83d\ude00"`, `{"a" : 0.1 , "b":{`, `{]`, `{"a":nul}`} {
		f.Add(seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		var p prefix
		taken := ""
		for rest := text; rest != ""; {
			n := min(int(step)%7+1, len(rest))
			taken += p.take(rest[:n])
			rest = rest[n:]
		}
		whole := taken + p.rest()
		var o map[string]json.RawMessage
		if err := json.Unmarshal([]byte(whole), &o); err != nil || o == nil {
			t.Fatalf("%q became %q: %v", text, whole, err)
		}
		if text[:len(taken)] != taken {
			t.Fatalf("%q was not passed on as it came: %q", text, taken)
		}
		if json.Unmarshal([]byte(text), &o) == nil && o != nil && whole != text {
			t.Fatalf("the object %q became %q", text, whole)
		}
	})
}
