package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/deploy/local/internal/datadir"
)

// canonical are the events of a run, as they stand in its log.
func canonical() []string {
	const open = `{"version":1,"run_id":"run_1","conversation_id":"c1","timestamp":"2026-01-02T03:04:05Z","namespace":[],`
	return []string{
		open + `"sequence":0,"type":"run.started","data":{"harness_id":"native","adapter_version":"1.0.0"}}`,
		open + `"sequence":1,"type":"run.cancelled","data":{"reason":"client_request","side_effect_status":"none"}}`,
	}
}

func TestRuns(t *testing.T) {
	answers := map[string]string{
		"GET /api/v1/bindings": `{"bindings":[{"binding_id":"hs_1","agent_id":"demo","agent_version":2,"lease_generation":3,"run":{"run_id":"run_1","events":7}},
			{"binding_id":"hs_2","agent_id":"demo","agent_version":1,"lease_generation":1}]}`,
		"GET /api/v1/runs/run_1":         `{"run_id":"run_1","state":"running","events":7}`,
		"POST /api/v1/runs/run_1:cancel": `{"cancelled":true,"confirmed":true,"side_effect_status":"none"}`,
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/runs/run_1/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			for n, e := range canonical() {
				_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n, e)
			}
			return
		}
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"error":{"code":"not_found","category":"not_found","message":"m","retryable":false,"incident_id":"i"}}`
		}
		_, _ = fmt.Fprintln(w, answer)
	}))
	defer ts.Close()
	d := folder(t)
	if err := d.SetRunning(datadir.Running{API: ts.URL, Operator: ts.URL}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitOK, "RUN    AGENT    EVENTS  GENERATION  BINDING\nrun_1  demo v2  7       3           hs_1\n"},
		{[]string{"--tail", "run_1"}, exitOK, strings.Join(canonical(), "\n") + "\n"},
		{[]string{"--cancel", "run_1"}, exitOK, `{"cancelled":true,"confirmed":true,"side_effect_status":"none"}` + "\n"},
		{[]string{"--show", "run_1", "--subject", "user-2"}, exitOK, `{"run_id":"run_1",`},
		{[]string{"--show", "run_2"}, exitFailed, ""},
	} {
		code, stdout, stderr := cofferdam(t, append([]string{"runs", "--data", d.Path()}, c.args...)...)
		if code != c.code || !strings.HasPrefix(stdout, c.want) || (c.want == "") != (stdout == "") {
			t.Errorf("%v: %d %q\n%s\nwant\n%s", c.args, code, stderr, stdout, c.want)
		}
	}
}
