package certify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
	"cofferdam.dev/tests/stack"
)

// servicePrefix stands before the name of each service in its spans.
const servicePrefix = "cofferdam-"

// along are the services that every run with a tool call comes to: some of them by the
// control plane, and some by the worker, which exports nothing itself.
func along() []string { return []string{"controlplane", "statefacade", "toolbroker"} }

// traces has runs exported to a collector, which then goes away for a while.
func traces(ctx context.Context, w *world, l *ledger) {
	w.collector.reset()
	said, err := w.traced(ctx)
	spans, raw := w.collector.spans()
	if err == nil {
		err = judgeTraces(spans, along())
	}
	l.figure("spans", float64(len(spans)))
	l.holds("a run with a tool call is one trace through "+strings.Join(along(), ", ")+", also behind its worker", err)

	keys, err := secrets.OfStack(w.Data)
	if err == nil {
		keys["token of the user"] = strings.TrimPrefix(w.users[0].Authorization(), "Bearer ")
		err = errors.Join(judgeSights(inSpans(raw, keys, said)), judgeAttributes(spans))
	}
	l.holds("spans have the attributes that the protocol allows, and nothing of secrets, subjects, conversations, texts, tools' arguments and results", err)

	l.holds("while the collector is away runs end as before and what is dropped is counted, and afterwards spans come again", w.outage(ctx))
}

// traced runs a turn with a tool call, and gives what nobody may find in its spans. It
// waits until the spans of the run were exported, which is done in batches.
func (w *world) traced(ctx context.Context) (said []string, err error) {
	c := w.talk(plain)
	canary := "canary-" + rand.Text()
	if _, err := c.tell(ctx, say(canary), list()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = stack.Until(ctx, func() (bool, error) {
		spans, _ := w.collector.spans()
		return judgeTraces(spans, along()) == nil, nil
	})
	if ctx.Err() != nil {
		err = nil // the judge says what is missing
	}
	return []string{canary, c.conversation, stack.User}, err
}

// judgeTraces sees that there is a trace that all of the services are in.
func judgeTraces(spans []span, services []string) error {
	if len(spans) == 0 {
		return errNoSpans
	}
	in := map[string][]string{}
	for _, s := range spans {
		if name, ok := strings.CutPrefix(s.Service, servicePrefix); ok && s.Trace != "" && !slices.Contains(in[s.Trace], name) {
			in[s.Trace] = append(in[s.Trace], name)
		}
	}
	best := []string{}
	for _, found := range in {
		missing := slices.DeleteFunc(slices.Clone(services), func(s string) bool { return slices.Contains(found, s) })
		if len(missing) == 0 {
			return nil
		}
		if len(found) > len(best) {
			best = found
		}
	}
	slices.Sort(best)
	return fmt.Errorf("of %d traces none has spans of %s; one has those of %s", len(in), strings.Join(services, ", "), strings.Join(best, ", "))
}

// inSpans looks through what was exported, in which the services have to be named.
func inSpans(raw string, keys secrets.Secrets, said []string) []sight {
	all := []sight{{"what was exported", "the name of a service", strings.Contains(raw, servicePrefix+"controlplane"), true}}
	all = append(all, sight{"what was exported", strings.Join(keys.In(raw), ", "), len(keys.In(raw)) > 0, false})
	for i, text := range said {
		all = append(all, sight{"what was exported", fmt.Sprintf("text %d of the conversation", i), strings.Contains(raw, text), false})
	}
	return all
}

// allowed are the attributes that the protocol lists, as Cofferdam names them, and what
// says of a call that it is one.
var allowed = regexp.MustCompile(`^(cofferdam\.(harness_id|adapter_id|adapter_version|execution_mode|profile|operation|outcome|error_code|error_category|` +
	`(binding|run|sandbox)_digest|generation|count|size_bytes|duration_ms|tool_risk|replayed)|` +
	`rpc\.(system|system\.name|method|service|response\.status_code|connect_rpc\.error_code)|error\.type|network\.protocol\.(name|version))$`)

func judgeAttributes(spans []span) error {
	var errs []error
	told := map[string]bool{}
	for _, s := range spans {
		for _, key := range s.Keys {
			if !allowed.MatchString(key) && !told[key] {
				told[key] = true
				errs = append(errs, fmt.Errorf("a span of %s has the attribute %s", s.Service, key))
			}
		}
	}
	if len(spans) == 0 {
		errs = append(errs, errNoSpans)
	}
	return errors.Join(errs...)
}

// absence is what was seen of a collector that went away.
type absence struct {
	// Endings of runs meanwhile, and how many spans were counted as dropped before and
	// in the end.
	Endings       []string
	Before, After float64
	// Again says that spans came when it was back.
	Again bool
}

func judgeAbsence(a absence) error {
	err := judgeEnds(a.Endings, "run.finished")
	if a.After <= a.Before {
		err = errors.Join(err, fmt.Errorf("%v spans were counted as dropped before and %v after: nobody is told", a.Before, a.After))
	}
	if !a.Again {
		err = errors.Join(err, errors.New("no span came after the collector was back"))
	}
	return err
}

func (w *world) outage(ctx context.Context) error {
	var a absence
	var err error
	if a.Before, err = w.dropped(ctx); err != nil {
		return err
	}
	if err := w.collector.close(); err != nil {
		return err
	}
	for range 2 {
		c := w.talk(plain)
		run, err := c.begin(ctx, say("unseen"), list())
		if err != nil {
			return errors.Join(err, w.collector.open(ctx))
		}
		r, err := w.end(ctx, 0, run)
		if err != nil {
			return errors.Join(err, w.collector.open(ctx))
		}
		a.Endings = append(a.Endings, r.ending())
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	counted := stack.Until(wait, func() (bool, error) {
		a.After, err = w.dropped(wait)
		return err == nil && a.After > a.Before, err
	})
	if wait.Err() != nil {
		counted = nil // the judge says so
	}
	w.collector.reset()
	if err := errors.Join(counted, w.collector.open(ctx)); err != nil {
		return err
	}
	_, err = w.traced(ctx)
	spans, _ := w.collector.spans()
	a.Again = len(spans) > 0
	return errors.Join(err, judgeAbsence(a))
}

// droppedMetric counts what could not be exported.
const droppedMetric = "cofferdam_telemetry_dropped_spans_total"

// dropped asks the first replica how many of its spans were dropped. Its metrics are on
// one of its listeners, and the others speak TLS, or know no such page.
func (w *world) dropped(ctx context.Context) (float64, error) {
	p, err := w.Replica(0)
	if err != nil {
		return 0, err
	}
	addresses, err := procs.Listeners(p.PID)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, a := range addresses {
		page, ok := get(ctx, client, "http://"+a.String()+"/metrics")
		if !ok || !strings.Contains(page, "# TYPE ") {
			continue
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, droppedMetric) {
				f := strings.Fields(line)
				return strconv.ParseFloat(f[len(f)-1], 64)
			}
		}
		return 0, nil // what never happened is not there
	}
	return 0, fmt.Errorf("no listener of %s has metrics", p)
}

func get(ctx context.Context, client *http.Client, url string) (page string, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", false
	}
	res, err := client.Do(req)
	if err != nil {
		return "", false
	}
	defer func() { _ = res.Body.Close() }() // it was read
	const most = 4 << 20
	raw, err := io.ReadAll(io.LimitReader(res.Body, most))
	return string(raw), err == nil && res.StatusCode == http.StatusOK
}
