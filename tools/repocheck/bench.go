package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// benchmark is one line of `go test -bench`.
type benchmark struct {
	Package    string             `json:"package"`
	Name       string             `json:"name"`
	Procs      int                `json:"procs"`
	Iterations int64              `json:"iterations"`
	Figures    map[string]float64 `json:"figures"` // by unit: ns/op, B/op, allocs/op, ...
}

// Benchmark names end in -N when GOMAXPROCS is not 1.
var procsSuffix = regexp.MustCompile(`-(\d+)$`)

// summarizeBenchmarks copies the output of `go test -bench` and ends with one
// JSON line of its figures. A failed package or no benchmark is an error.
func summarizeBenchmarks(in io.Reader, out io.Writer) error {
	summary := struct {
		Target     string      `json:"target"`
		GOOS       string      `json:"goos"`
		GOARCH     string      `json:"goarch"`
		Go         string      `json:"go"`
		CPU        string      `json:"cpu"`
		Benchmarks []benchmark `json:"benchmarks"`
	}{Target: "bench", GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, Go: runtime.Version()}
	var (
		pkg    string
		failed bool
	)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
		if value, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = value
		} else if value, ok := strings.CutPrefix(line, "cpu: "); ok {
			summary.CPU = value
		} else if strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "--- FAIL") {
			failed = true
		} else if b, ok := parseBenchmark(line); ok {
			b.Package = pkg
			summary.Benchmarks = append(summary.Benchmarks, b)
		}
	}
	switch {
	case lines.Err() != nil:
		return lines.Err()
	case failed:
		return errors.New("a benchmark failed")
	case len(summary.Benchmarks) == 0:
		return errors.New("no benchmark ran")
	}
	return json.NewEncoder(out).Encode(summary)
}

// parseBenchmark reads "BenchmarkX-2  100  12.3 ns/op  4 B/op".
func parseBenchmark(line string) (benchmark, bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
		return benchmark{}, false
	}
	iterations, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return benchmark{}, false
	}
	b := benchmark{Name: strings.TrimPrefix(fields[0], "Benchmark"), Procs: 1, Iterations: iterations, Figures: map[string]float64{}}
	if suffix := procsSuffix.FindStringSubmatch(b.Name); suffix != nil {
		if n, err := strconv.Atoi(suffix[1]); err == nil {
			b.Name, b.Procs = strings.TrimSuffix(b.Name, suffix[0]), n
		}
	}
	for i := 2; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return benchmark{}, false
		}
		b.Figures[fields[i+1]] = value
	}
	return b, true
}
