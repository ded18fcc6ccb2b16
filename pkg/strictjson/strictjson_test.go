package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"cofferdam.dev/pkg/strictjson"
)

type inner struct {
	Name  string `json:"name"`
	Count uint8  `json:"count,omitempty"`
}

type base struct {
	ID string `json:"id,omitempty"`
}

type Deeper struct {
	Depth int `json:"depth,omitempty"`
}

type pair struct {
	One *int `json:"one"`
	Two *int `json:"two"`
}

type document struct {
	base
	*Deeper
	Untagged int               `json:",omitempty"`
	Address  netip.Addr        `json:"address,omitzero"`
	Text     string            `json:"text"`
	Number   int64             `json:"number,omitempty"`
	Ratio    float64           `json:"ratio,omitempty"`
	Flag     bool              `json:"flag,omitempty"`
	List     []inner           `json:"list,omitempty"`
	Pair     [2]int            `json:"pair,omitempty"`
	Labels   map[string]inner  `json:"labels,omitempty"`
	When     time.Time         `json:"when,omitzero"`
	Maybe    *string           `json:"maybe,omitempty"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	Any      any               `json:"any,omitempty"`
	Bytes    []byte            `json:"bytes,omitempty"`
	Hidden   string            `json:"-"`
	Tags     map[string]string `json:"tags,omitempty"`
	Pairs    []pair            `json:"pairs,omitempty"`
}

// nested is n arrays in one another.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc  string
		kind strictjson.Kind
		path string
	}{
		"empty":                          {"", strictjson.KindSyntax, ""},
		"only space":                     {" \n", strictjson.KindSyntax, ""},
		"byte order mark":                {"\ufeff{}", strictjson.KindSyntax, ""},
		"no JSON":                        {"hello", strictjson.KindSyntax, ""},
		"open object":                    {`{"text":"a"`, strictjson.KindSyntax, ""},
		"comma at the end":               {`{"text":"a",}`, strictjson.KindSyntax, ""},
		"comma at the beginning":         {`{,"text":"a"}`, strictjson.KindSyntax, ""},
		"no comma":                       {`{"text":"a" "number":1}`, strictjson.KindSyntax, ""},
		"no colon":                       {`{"text" "a"}`, strictjson.KindSyntax, ""},
		"key without quotes":             {`{text:"a"}`, strictjson.KindSyntax, ""},
		"single quotes":                  {`{'text':'a'}`, strictjson.KindSyntax, ""},
		"comment":                        {`{} // a`, strictjson.KindTrailing, ""},
		"two values":                     {`{"text":"a"} {}`, strictjson.KindTrailing, ""},
		"open string":                    {`{"text":"a`, strictjson.KindSyntax, "/text"},
		"bad escape":                     {`{"text":"\x"}`, strictjson.KindSyntax, "/text"},
		"half an escape":                 {`{"text":"\`, strictjson.KindSyntax, "/text"},
		"short unicode escape":           {`{"text":"\u12"}`, strictjson.KindSyntax, "/text"},
		"raw newline in a string":        {"{\"text\":\"a\nb\"}", strictjson.KindSyntax, "/text"},
		"raw NUL in a string":            {"{\"text\":\"a\x00b\"}", strictjson.KindSyntax, "/text"},
		"leading zero":                   {`{"number":01}`, strictjson.KindSyntax, ""},
		"plus sign":                      {`{"number":+1}`, strictjson.KindSyntax, "/number"},
		"no digit after the point":       {`{"ratio":1.}`, strictjson.KindSyntax, "/ratio"},
		"no digit in the exponent":       {`{"ratio":1e}`, strictjson.KindSyntax, "/ratio"},
		"NaN":                            {`{"ratio":NaN}`, strictjson.KindSyntax, "/ratio"},
		"Infinity":                       {`{"ratio":-Infinity}`, strictjson.KindSyntax, "/ratio"},
		"number that becomes infinite":   {`{"any":1e999}`, strictjson.KindNumber, "/any"},
		"number without end":             {`{"any":` + strings.Repeat("9", 200) + `}`, strictjson.KindNumber, "/any"},
		"integer over int64":             {`{"number":9223372036854775808}`, strictjson.KindNumber, "/number"},
		"integer over uint8":             {`{"list":[{"count":256}]}`, strictjson.KindNumber, "/list/0/count"},
		"negative unsigned":              {`{"list":[{"count":-1}]}`, strictjson.KindType, "/list/0/count"},
		"float for an integer":           {`{"number":1.0}`, strictjson.KindType, "/number"},
		"exponent for an integer":        {`{"number":1e3}`, strictjson.KindType, "/number"},
		"string for a number":            {`{"number":"1"}`, strictjson.KindType, "/number"},
		"number for a string":            {`{"text":1}`, strictjson.KindType, "/text"},
		"object for a list":              {`{"list":{}}`, strictjson.KindType, "/list"},
		"list for an object":             {`{"list":[[]]}`, strictjson.KindType, "/list/0"},
		"number for a flag":              {`{"flag":1}`, strictjson.KindType, "/flag"},
		"null for a string":              {`{"text":null}`, strictjson.KindType, "/text"},
		"null in a list":                 {`{"list":[null]}`, strictjson.KindType, "/list/0"},
		"null for all":                   {`null`, strictjson.KindType, ""},
		"list for all":                   {`[]`, strictjson.KindType, ""},
		"too many for an array":          {`{"pair":[1,2,3]}`, strictjson.KindType, "/pair/2"},
		"no time":                        {`{"when":"yesterday"}`, strictjson.KindType, "/when"},
		"no address":                     {`{"address":"localhost"}`, strictjson.KindType, "/address"},
		"number for an address":          {`{"address":1}`, strictjson.KindType, "/address"},
		"half a literal":                 {`{"flag":trux}`, strictjson.KindSyntax, "/flag"},
		"half a null":                    {`{"maybe":nul}`, strictjson.KindSyntax, "/maybe"},
		"key without its first quote":    {`{xtext":"a"}`, strictjson.KindSyntax, ""},
		"33 objects deep":                {`{"any":` + strings.Repeat(`{"a":`, 32) + `1` + strings.Repeat("}", 33), strictjson.KindDepth, "/any" + strings.Repeat("/a", 31)},
		"key twice, once as surrogates":  {"{\"tags\":{\"😀\":\"\",\"\\ud83d\\ude00\":\"\"}}", strictjson.KindDuplicateKey, "/tags/😀"},
		"odd key in the path":            {`{"any":{"a/b~c\u200b":{"x":1,"x":2}}}`, strictjson.KindDuplicateKey, "/any/a~1b~0c\ufffd/x"},
		"no base64":                      {`{"bytes":"%"}`, strictjson.KindType, ""},
		"unknown field":                  {`{"txt":"a"}`, strictjson.KindUnknownField, "/txt"},
		"unknown field deep down":        {`{"labels":{"a":{"nam":1}}}`, strictjson.KindUnknownField, "/labels/a/nam"},
		"field in another case":          {`{"Text":"a"}`, strictjson.KindUnknownField, "/Text"},
		"field in a folded letter":       {"{\"li\u017ft\":[]}", strictjson.KindUnknownField, "/li\u017ft"},
		"hidden field":                   {`{"Hidden":"a"}`, strictjson.KindUnknownField, "/Hidden"},
		"embedded struct by name":        {`{"base":{}}`, strictjson.KindUnknownField, "/base"},
		"key twice":                      {`{"text":"a","text":"b"}`, strictjson.KindDuplicateKey, "/text"},
		"key twice, once escaped":        {`{"text":"a","te\u0078t":"b"}`, strictjson.KindDuplicateKey, "/text"},
		"key twice deep down":            {`{"any":[{"a":{"b":1,"b":2}}]}`, strictjson.KindDuplicateKey, "/any/0/a/b"},
		"key twice in raw JSON":          {`{"raw":{"a":1,"a":1}}`, strictjson.KindDuplicateKey, "/raw/a"},
		"keys in two cases":              {`{"any":{"method":1,"Method":2}}`, strictjson.KindCaseVariant, "/any/Method"},
		"keys in two cases, Kelvin sign": {"{\"tags\":{\"key\":\"\",\"\u212aey\":\"\"}}", strictjson.KindCaseVariant, "/tags/\u212aey"},
		"invalid UTF-8":                  {"{\"text\":\"\xff\"}", strictjson.KindEncoding, "/text"},
		"overlong NUL":                   {"{\"text\":\"\xc0\x80\"}", strictjson.KindEncoding, "/text"},
		"surrogate in UTF-8":             {"{\"text\":\"\xed\xa0\x80\"}", strictjson.KindEncoding, "/text"},
		"invalid UTF-8 in a key":         {"{\"any\":{\"\xff\":1}}", strictjson.KindEncoding, "/any"},
		"high surrogate alone":           {`{"text":"\ud800"}`, strictjson.KindSurrogate, "/text"},
		"low surrogate alone":            {`{"text":"\udc00"}`, strictjson.KindSurrogate, "/text"},
		"surrogates in the wrong order":  {`{"text":"\udc00\ud800"}`, strictjson.KindSurrogate, "/text"},
		"two high surrogates":            {`{"text":"\ud800\ud800"}`, strictjson.KindSurrogate, "/text"},
		"escaped NUL":                    {`{"text":"\u0000"}`, strictjson.KindControl, "/text"},
		"escaped backspace":              {`{"text":"\b"}`, strictjson.KindControl, "/text"},
		"escaped escape":                 {`{"text":"\u001B"}`, strictjson.KindControl, "/text"},
		"control in a key":               {`{"any":{"\u0001":1}}`, strictjson.KindControl, "/any"},
		"33 deep":                        {nested(33), strictjson.KindType, ""},
		"33 deep below a field":          {`{"any":` + nested(32) + `}`, strictjson.KindDepth, "/any" + strings.Repeat("/0", 31)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d document
			err := strictjson.Unmarshal([]byte(c.doc), &d, strictjson.Options{})
			want := &strictjson.Error{Kind: c.kind, Path: c.path}
			if got, ok := errors.AsType[*strictjson.Error](err); !ok || *got != *want {
				t.Fatalf("got %v, want %v", err, want)
			}
		})
	}
}

func TestWhatIsTaken(t *testing.T) {
	t.Parallel()
	const doc = `{ "id":"x", "text": "a\t\r\n\ud83d\ude00\u00e9/\/", "number": -3, "ratio": 1.5e2, "flag": true,
		"list": [{"name":"n","count":255}], "pair": [1,2], "labels": {"k":{"name":"m"}}, "when": "2026-08-17T00:00:00Z",
		"maybe": null, "depth": 2, "Untagged": 3, "address": "127.0.0.1", "raw": {"b":1,"a":[ ]}, "any": {"big": 12345678901234567890}, "bytes": "AQI=", "tags": null }`
	var got document
	if err := strictjson.Unmarshal([]byte(doc), &got, strictjson.Options{}); err != nil {
		t.Fatal(err)
	}
	want := document{
		base: base{ID: "x"}, Deeper: &Deeper{Depth: 2}, Untagged: 3, Address: netip.MustParseAddr("127.0.0.1"),
		Text: "a\t\r\n😀é//", Number: -3, Ratio: 150, Flag: true,
		List: []inner{{Name: "n", Count: 255}}, Pair: [2]int{1, 2}, Labels: map[string]inner{"k": {Name: "m"}},
		When: time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC), Raw: json.RawMessage(`{"b":1,"a":[ ]}`),
		Any: map[string]any{"big": json.Number("12345678901234567890")}, Bytes: []byte{1, 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRequiredFields(t *testing.T) {
	t.Parallel()
	for doc, path := range map[string]string{
		`{}`:                              "/text",
		`{"number":1}`:                    "/text",
		`{"text":"","list":[{}]}`:         "/list/0/name",
		`{"text":"","pairs":[{"one":1}]}`: "/pairs/0/two",
		`{"text":"","labels":{"a":{}}}`:   "/labels/a/name",
		`{"text":""}`:                     "",
		`{"text":"","list":null}`:         "",
		`{"text":"","pairs":[{"one":null,"two":null}]}`: "",
	} {
		var d document
		err := strictjson.Unmarshal([]byte(doc), &d, strictjson.Options{RequireFields: true})
		e, _ := errors.AsType[*strictjson.Error](err)
		if path == "" && err != nil || path != "" && (e == nil || e.Kind != strictjson.KindMissingField || e.Path != path) {
			t.Errorf("%s: got %v, want a missing field at %q", doc, err, path)
		}
		if err := strictjson.Unmarshal([]byte(doc), &d, strictjson.Options{}); err != nil {
			t.Errorf("%s without RequireFields: %v", doc, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc    string
		opts   strictjson.Options
		strict strictjson.Kind
	}{
		"controls":      {`"\u0000\b\f"`, strictjson.Options{AllowControls: true}, strictjson.KindControl},
		"case variants": {`{"a":1,"A":2}`, strictjson.Options{AllowCaseVariants: true}, strictjson.KindCaseVariant},
		"depth":         {nested(40), strictjson.Options{MaxDepth: 40}, strictjson.KindDepth},
		"size":          {`"` + strings.Repeat("a", strictjson.DefaultMaxBytes) + `"`, strictjson.Options{MaxBytes: 2 << 20}, strictjson.KindSize},
	} {
		if err := strictjson.Check([]byte(c.doc), c.opts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		e, _ := errors.AsType[*strictjson.Error](strictjson.Check([]byte(c.doc), strictjson.Options{}))
		if e == nil || e.Kind != c.strict {
			t.Errorf("%s without the option: %v, want %q", name, e, c.strict)
		}
	}
	if err := strictjson.Check([]byte(`{"a":1,"a":2}`), strictjson.Options{AllowCaseVariants: true}); err == nil {
		t.Error("the same key twice was taken with AllowCaseVariants")
	}
}

// An object of many keys takes another way than one of few.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString(`{"Key0":0`)
	for i := range 60_000 {
		b.WriteString(`,"k`)
		b.WriteString(strings.Repeat("x", i%7))
		b.WriteString(time.Duration(i).String())
		b.WriteString(`":0`)
	}
	few := b.String()
	if err := strictjson.Check([]byte(few+"}"), strictjson.Options{MaxBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	for more, kind := range map[string]strictjson.Kind{
		`,"Key0":0}`:        strictjson.KindDuplicateKey,
		`,"kEY0":0}`:        strictjson.KindCaseVariant,
		",\"\u212aey0\":0}": strictjson.KindCaseVariant,
		`,"kxxxxx5ns":0}`:   strictjson.KindDuplicateKey,
	} {
		e, _ := errors.AsType[*strictjson.Error](strictjson.Check([]byte(few+more), strictjson.Options{MaxBytes: 4 << 20}))
		if e == nil || e.Kind != kind {
			t.Errorf("%s: %v, want %q", more, e, kind)
		}
	}
}

func TestErrorsNameNoValueAndStaySmall(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, doc := range []string{
		`{"number":"` + secret + `"}`, `{"when":"` + secret + `"}`, `{"bytes":"%` + secret + `"}`, `{"text":"` + secret + `\u0000"}`,
		`{"any":{"` + strings.Repeat("k", 10_000) + "\x1b" + `":{"a":1,"a":2}}}`,
		strings.Repeat(`{"`+strings.Repeat("k", 300)+`":`, 30) + "!",
	} {
		var d document
		err := strictjson.Unmarshal([]byte(doc), &d, strictjson.Options{})
		if err == nil {
			err = strictjson.Check([]byte(doc), strictjson.Options{})
		}
		if err == nil || strings.Contains(err.Error(), secret) || len(err.Error()) > 700 || strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%.40s: %v", doc, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for want, doc := range map[string]string{
		"strictjson: data after the value":              `1 2`,
		"strictjson: /a/1/: key given twice":            `{"a":[0,{"":1,"":2}]}`,
		"strictjson: /" + strings.Repeat("k", 64) + "…": `{"` + strings.Repeat("k", 65) + `":x}`,
	} {
		if err := strictjson.Check([]byte(doc), strictjson.Options{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestDecodeReadsNoFurtherThanItsBound(t *testing.T) {
	t.Parallel()
	r := strings.NewReader(`{"text":"` + strings.Repeat("a", 1000) + `"}`)
	var d document
	err := strictjson.Decode(r, &d, strictjson.Options{MaxBytes: 100})
	if e, _ := errors.AsType[*strictjson.Error](err); e == nil || e.Kind != strictjson.KindSize {
		t.Errorf("got %v, want a document that is too large", err)
	}
	if rest, _ := io.ReadAll(r); len(rest) != 1011-101 {
		t.Errorf("%d bytes were left unread", len(rest))
	}
	if err := strictjson.Decode(strings.NewReader(`{"text":"a"}`), &d, strictjson.Options{MaxBytes: 12}); err != nil || d.Text != "a" {
		t.Errorf("at the bound: %v", err)
	}
	if err := strictjson.Decode(iotest.ErrReader(io.ErrUnexpectedEOF), &d, strictjson.Options{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an error of the reader was lost: %v", err)
	}
}

func TestOnlyPointersCanBeDecodedInto(t *testing.T) {
	t.Parallel()
	var none *document
	for _, v := range []any{nil, document{}, none} {
		if err := strictjson.Unmarshal([]byte(`{}`), v, strictjson.Options{}); err == nil {
			t.Errorf("%T was taken", v)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	doc := []byte(`{"version":1,"type":"text.delta","run_id":"run-1","conversation_id":"c-1","sequence":3,"timestamp":"2026-08-17T00:00:00Z","namespace":[],"data":{"message_id":"m-1","delta":"some words"}}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if err := strictjson.Check(doc, strictjson.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
