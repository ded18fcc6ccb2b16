package strictjson_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"cofferdam.dev/pkg/strictjson"
)

// FuzzCheck: no input panics, and what is taken is JSON to encoding/json too,
// is UTF-8, and means the same after it is encoded again.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5e3,"\ud83d\ude00\n",true,false,null],"b":{}}`, `{"a":1,"A":2}`, `"\ud800"`, "\"\xff\"", `[[[[]]]]`, `-0`, `1E+2`, `{"":""}`, ` "\u0000" `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strictjson.Check(data, strictjson.Options{}) != nil {
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("taken, but not valid: %q", data)
		}
		first, again := any(nil), any(nil)
		if err := strictjson.Unmarshal(data, &first, strictjson.Options{}); err != nil {
			t.Fatalf("checked, but not decoded: %v", err)
		}
		encoded, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := strictjson.Unmarshal(encoded, &again, strictjson.Options{MaxBytes: 8 << 20}); err != nil {
			t.Fatalf("%q was taken and became %q, which is refused: %v", data, encoded, err)
		}
		if !reflect.DeepEqual(first, again) {
			t.Fatalf("%q became %q", data, encoded)
		}
		if n, m := leaves(data), leaves(encoded); n != m {
			t.Fatalf("%d tokens became %d: a key was lost in %q", n, m, data)
		}
	})
}

// FuzzUnmarshal: no input panics a typed decoder, and what is taken comes back
// equal.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"text":"a","list":[{"name":"b","count":1}],"any":{"x":[1]},"when":"2026-08-17T00:00:00Z"}`))
	f.Add([]byte(`{"text":null,"pair":[1,2,3]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, again document
		if strictjson.Unmarshal(data, &first, strictjson.Options{RequireFields: true}) != nil {
			return
		}
		encoded, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := strictjson.Unmarshal(encoded, &again, strictjson.Options{MaxBytes: 8 << 20}); err != nil {
			t.Fatalf("%q was taken and became %q, which is refused: %v", data, encoded, err)
		}
		twice, err := json.Marshal(again)
		if err != nil || !bytes.Equal(encoded, twice) {
			t.Fatalf("%q became %q, then %q: %v", data, encoded, twice, err)
		}
	})
}

func leaves(data []byte) (n int) {
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); err != nil {
			return n
		}
		n++
	}
}
