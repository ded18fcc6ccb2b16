package strictjson_test

import (
	"testing"

	"cofferdam.dev/pkg/strictjson"
)

func TestCanonical(t *testing.T) {
	for _, text := range []string{`{"b":1.0,"a":"é<"}`, " { \"a\" : \"\\u00e9\\u003c\", \n\"b\":1.0 } "} {
		got, err := strictjson.Canonical([]byte(text), strictjson.Options{})
		if err != nil || string(got) != `{"a":"é\u003c","b":1.0}` {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"a":1,"a":1}`, `{"a":1,"A":1}`, `{`, ``} {
		if got, err := strictjson.Canonical([]byte(text), strictjson.Options{}); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
}
