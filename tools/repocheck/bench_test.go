package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestBenchmarks(t *testing.T) {
	const in = `goos: linux
goarch: amd64
pkg: cofferdam.dev/pkg/fence
cpu: Some CPU @ 2.00GHz
BenchmarkAdmit-2          	     100	       123.5 ns/op	      16 B/op	       2 allocs/op
BenchmarkAdmit/stale-row-2	       7	      9 ns/op
PASS
ok  	cofferdam.dev/pkg/fence	1.234s
pkg: cofferdam.dev/pkg/event
BenchmarkValidate 	     5	       1e+06 ns/op	 3.25 MB/s
BenchmarkNot a result
PASS
`
	var out bytes.Buffer
	if err := summarizeBenchmarks(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	text, last, found := strings.Cut(out.String(), `{"target"`)
	if !found || text != in {
		t.Fatalf("the output was not copied: %q", out.String())
	}
	var got struct{ Benchmarks []benchmark }
	if err := json.Unmarshal([]byte(`{"target"`+last), &got); err != nil {
		t.Fatal(err)
	}
	want := `[{"package":"cofferdam.dev/pkg/fence","name":"Admit","procs":2,"iterations":100,"figures":{"B/op":16,"allocs/op":2,"ns/op":123.5}},` +
		`{"package":"cofferdam.dev/pkg/fence","name":"Admit/stale-row","procs":2,"iterations":7,"figures":{"ns/op":9}},` +
		`{"package":"cofferdam.dev/pkg/event","name":"Validate","procs":1,"iterations":5,"figures":{"MB/s":3.25,"ns/op":1000000}}]`
	if text, err := json.Marshal(got.Benchmarks); err != nil || string(text) != want {
		t.Errorf("got  %s\nwant %s\n%v", text, want, err)
	}
}

func TestBenchmarksThatFail(t *testing.T) {
	const good = "BenchmarkAdmit-2  100  1 ns/op\n"
	for name, in := range map[string]string{
		"nothing":      "",
		"no benchmark": "PASS\nok  \tcofferdam.dev/pkg/fence\t1.2s\n",
		"one failed":   good + "--- FAIL: BenchmarkOther-2\nFAIL\n",
		"build failed": good + "FAIL\tcofferdam.dev/pkg/event [build failed]\n",
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := summarizeBenchmarks(strings.NewReader(in), &out); err == nil {
				t.Fatal("taken")
			}
			if strings.Contains(out.String(), `"target"`) {
				t.Errorf("figures of a failure: %s", out.String())
			}
		})
	}
}
