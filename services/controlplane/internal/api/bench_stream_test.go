//go:build benchtools

package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	aguievents "cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/customsse"
	"cofferdam.dev/services/controlplane/internal/workerclient/workertest"
)

const (
	benchEvents = 40_000 // of each throughput, over all its streams
	pacedRuns   = 100
	pacedEvery  = 20_000 // microseconds: 50 events a second
	pacedEvents = 500    // of each run: 10 seconds
	openStreams = 1000
)

// streamFigures is the closing line.
type streamFigures struct {
	Target  string             `json:"target"`
	Bare    float64            `json:"bare_events_per_s"`
	PerS    float64            `json:"events_per_s"`
	Ratio   float64            `json:"ratio"`
	Added50 float64            `json:"added_p50_ms"`
	Added95 float64            `json:"added_p95_ms"`
	Added99 float64            `json:"added_p99_ms"`
	ByCount map[string]float64 `json:"events_per_s_by_streams"`
	Open    float64            `json:"kib_per_open_stream"`
	Idle    float64            `json:"kib_per_idle_binding"`
	Encoded map[string]float64 `json:"encoded_events_per_s"`
	Allocs  map[string]int64   `json:"allocs_per_event"`
}

// TestBenchStream is `make bench-stream`: events from a worker over mutual TLS
// through the control plane, its committed log on SQLite and the public API to a
// reader of the custom stream, beside the same events on a bare Connect stream.
func TestBenchStream(t *testing.T) {
	b := newBenchStand(t)
	out := streamFigures{Target: "bench-stream", ByCount: map[string]float64{}, Encoded: map[string]float64{}, Allocs: map[string]int64{}}
	b.bareRate(t, 1, benchEvents/10) // warm
	out.Bare = b.bareRate(t, 1, benchEvents)
	b.rate(t, 1, benchEvents/10)
	out.PerS = b.rate(t, 1, benchEvents)
	out.Ratio = out.PerS / out.Bare
	for _, n := range []int{10, 100, 1000} {
		out.ByCount[strconv.Itoa(n)] = b.rate(t, n, benchEvents/n)
	}
	out.ByCount["1"] = out.PerS
	bare, through := b.bareLatency(t), b.latency(t)
	out.Added50, out.Added95, out.Added99 = through[0]-bare[0], through[1]-bare[1], through[2]-bare[2]
	t.Logf("latency in ms (p50, p95, p99): bare %.2f, through the control plane %.2f", bare, through)
	out.Open, out.Idle = b.memory(t)
	encoders(&out)
	line, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(os.Stdout, string(line)); err != nil {
		t.Fatal(err)
	}
}

// rate is how many events a second readers get of so many runs at once.
func (b *benchStand) rate(t *testing.T, streams, events int) float64 {
	t.Helper()
	begun := time.Now()
	b.each(t, streams, workertest.Order{Events: events}, func(time.Duration) {})
	return float64(streams*events) / time.Since(begun).Seconds()
}

// latency is how long an event takes from the worker to the reader.
func (b *benchStand) latency(t *testing.T) []float64 {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	b.each(t, pacedRuns, workertest.Order{Events: pacedEvents, Every: pacedEvery}, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d)
	})
	return percentiles(all)
}

// each starts runs of one order, and reads all of them to their ends.
func (b *benchStand) each(t *testing.T, n int, o workertest.Order, took func(time.Duration)) {
	t.Helper()
	message, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			errs <- b.one(t, fmt.Sprintf("c-%d-%d", time.Now().UnixNano(), i), string(message), o.Events, took)
		})
	}
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func (b *benchStand) one(t *testing.T, conversation, message string, events int, took func(time.Duration)) error {
	body, err := json.Marshal(map[string]string{"agent_id": "demo", "conversation_id": conversation, "message": message})
	if err != nil {
		return err
	}
	res, err := b.client.Do(b.request(t, http.MethodPost, "/api/v1/runs", string(body)))
	if err != nil {
		return err
	}
	var started struct {
		RunID string `json:"run_id"`
	}
	err = json.NewDecoder(res.Body).Decode(&started)
	if err = errors.Join(err, res.Body.Close()); err != nil || started.RunID == "" {
		return fmt.Errorf("start: %s, %w", res.Status, err)
	}
	stream, err := b.client.Do(b.request(t, http.MethodGet, "/api/v1/runs/"+started.RunID+"/stream?protocol=custom", ""))
	if err != nil {
		return err
	}
	defer stream.Body.Close()
	seen, last := 0, ""
	lines := bufio.NewReaderSize(stream.Body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("data: ")) {
			last = string(line)
		}
		if _, delta, ok := bytes.Cut(line, []byte(`"delta":"`)); ok {
			seen++
			took(since(string(delta[:19])))
		}
	}
	if seen != events {
		return fmt.Errorf("a reader saw %d of %d events, and at last %s", seen, events, last)
	}
	return nil
}

func since(nanoseconds string) time.Duration {
	at, err := strconv.ParseInt(nanoseconds, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - at)
}

// bareRate and bareLatency are of the worker's stream without a control plane.
func (b *benchStand) bareRate(t *testing.T, streams, events int) float64 {
	t.Helper()
	begun := time.Now()
	b.bareEach(t, streams, workertest.Order{Events: events}, func(string) {})
	return float64(streams*events) / time.Since(begun).Seconds()
}

func (b *benchStand) bareLatency(t *testing.T) []float64 {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	b.bareEach(t, pacedRuns, workertest.Order{Events: pacedEvents, Every: pacedEvery}, func(delta string) {
		d := since(delta[:19])
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d)
	})
	return percentiles(all)
}

func (b *benchStand) bareEach(t *testing.T, n int, o workertest.Order, each func(delta string)) {
	t.Helper()
	message, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			env := fence.Envelope{
				BindingID: "hs_a_stream_without_a_control_plane", Epoch: 1, Generation: 1, RunID: fmt.Sprint("run_", i), RequestID: "q", IdempotencyKey: "run", Deadline: time.Now().Add(10 * time.Minute),
			}
			errs <- workertest.Read(t.Context(), b.bare, env, string(message), each)
		})
	}
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// percentiles are p50, p95 and p99 in milliseconds.
func percentiles(all []time.Duration) []float64 {
	slices.Sort(all)
	at := func(p int) float64 { return float64(all[len(all)*p/100].Microseconds()) / 1000 }
	return []float64{at(50), at(95), at(99)}
}

// memory is what a stream that waits, and a binding whose run has ended, hold of
// this process: heap and stacks. The readers are bare connections.
func (b *benchStand) memory(t *testing.T) (stream, idle float64) {
	t.Helper()
	before := held()
	b.each(t, openStreams, workertest.Order{Events: 1}, func(time.Duration) {})
	b.client.CloseIdleConnections()
	idle = (held() - before) / openStreams

	body := `{"agent_id":"demo","conversation_id":"waits","message":"{\"events\":2,\"every\":60000000}"}`
	a := b.post(t, "/api/v1/runs", body)
	var started struct {
		RunID string `json:"run_id"`
	}
	a.json(t, &started)
	u, err := url.Parse(b.public)
	if err != nil {
		t.Fatal(err)
	}
	request := "GET /api/v1/runs/" + started.RunID + "/stream?protocol=custom HTTP/1.1\r\nHost: " + u.Host + "\r\nAuthorization: Bearer " + b.token(t, "user-1") + "\r\n\r\n"
	before = held()
	conns := make([]net.Conn, 0, openStreams)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
		b.post(t, "/api/v1/runs/"+started.RunID+":cancel", "{}")
	}()
	for range openStreams {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200"))); err != nil {
			t.Fatal(err)
		}
	}
	return (held() - before) / openStreams, idle
}

// held is heap and stacks in KiB.
func held() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / 1024
}

// encoders measures them alone, beside encoding/json of the same events.
func encoders(out *streamFigures) {
	made := func() []event.Event {
		m := event.NewMachine("run-1", "c-1", event.Bounds{})
		events := make([]event.Event, 0, 1002)
		add := func(d event.Data) {
			e := m.Stamp(event.Draft{Data: d}, time.Now().UTC())
			if err := m.Accept(e); err != nil {
				panic(err)
			}
			events = append(events, e)
		}
		add(event.RunStarted{HarnessID: "native", AdapterVersion: "1"})
		add(event.TextStarted{MessageID: "m"})
		for range 1000 {
			add(event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", workertest.DeltaBytes)})
		}
		return events
	}()
	for name, encode := range map[string]func() func(event.Event) error{
		"agui": func() func(event.Event) error {
			e := aguievents.NewEncoder("c-1", "run-1")
			return func(ev event.Event) error { _, err := e.Encode(ev); return err }
		},
		"custom": func() func(event.Event) error {
			e := customsse.NewEncoder(nil)
			return func(ev event.Event) error { _, err := e.Encode(ev); return err }
		},
		"json": func() func(event.Event) error {
			return func(ev event.Event) error { _, err := json.Marshal(ev); return err }
		},
	} {
		r := testing.Benchmark(func(tb *testing.B) {
			tb.ReportAllocs()
			for tb.Loop() {
				one := encode()
				for _, ev := range made {
					if err := one(ev); err != nil {
						tb.Fatal(err)
					}
				}
			}
		})
		out.Encoded[name] = float64(len(made)) * 1e9 / float64(r.NsPerOp())
		out.Allocs[name] = r.AllocsPerOp() / int64(len(made))
	}
}
