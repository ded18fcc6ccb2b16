package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// did fails when it is called.
func did(t *testing.T) func(context.Context, *Runtime) error {
	t.Helper()
	return func(context.Context, *Runtime) error {
		t.Error("the service ran")
		return nil
	}
}

func TestExitCodes(t *testing.T) {
	errBroken := errors.New("broken pump")
	args := identified(t, "test")
	for name, c := range map[string]struct {
		args, environ []string
		run           func(context.Context, *Runtime) error
		want          int
		says          string
	}{
		"an orderly end":     {args, nil, func(context.Context, *Runtime) error { return nil }, 0, "service ended"},
		"an end of its own":  {args, nil, func(context.Context, *Runtime) error { return ExitError(143) }, 143, "service ended"},
		"help":               {[]string{"-help"}, nil, did(t), 0, "Usage of test"},
		"a failure":          {args, nil, func(context.Context, *Runtime) error { return errBroken }, 1, "broken pump"},
		"no configuration":   {nil, nil, did(t), 2, "Run test -help"},
		"an unknown flag":    {append([]string{"--nonsense"}, args...), nil, did(t), 2, "nonsense"},
		"a wrong value":      {append([]string{"--count=x"}, args...), nil, did(t), 2, "count"},
		"an unknown setting": {args, []string{"COFFERDAM_NONSENSE=1"}, did(t), 2, "COFFERDAM_NONSENSE"},
		"another domain":     {append(append([]string{}, args...), "--trust-domain", "other.test"), nil, did(t), 1, "other.test"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := start("test", c.args, c.environ, &stderr, &config{}, c.run); code != c.want || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("code %d, want %d: %s", code, c.want, &stderr)
			}
		})
	}
}

func TestTheRuntime(t *testing.T) {
	var stderr bytes.Buffer
	code := start("test", append(identified(t, "test"), "--log-level=debug"), nil, &stderr, &config{}, func(ctx context.Context, rt *Runtime) error {
		if rt.TrustDomain.Name() != "cofferdam.test" || rt.Source.ID().Path() != "/svc/test" || rt.Telemetry == nil || ctx.Err() != nil {
			t.Errorf("%+v", rt)
		}
		rt.Logger.DebugContext(ctx, "hello")
		return nil
	})
	var line map[string]any
	first, _, _ := strings.Cut(stderr.String(), "\n")
	if err := json.Unmarshal([]byte(first), &line); code != 0 || err != nil || line["msg"] != "hello" || line["service"] != "test" {
		t.Errorf("code %d, log %s", code, &stderr)
	}
}

func TestSignalsEndTheService(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		self, err := os.FindProcess(os.Getpid())
		must(t, err)
		var stderr bytes.Buffer
		code := start("test", identified(t, "test"), nil, &stderr, &config{}, func(ctx context.Context, _ *Runtime) error {
			if err := self.Signal(sig); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if code != 0 {
			t.Errorf("%v: code %d: %s", sig, code, &stderr)
		}
	}
}
