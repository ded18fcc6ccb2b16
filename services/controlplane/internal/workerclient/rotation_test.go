//go:build !race

package workerclient_test

import (
	"context"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/services/controlplane/internal/worker"
)

const (
	// says is what a worker says in one event, and rotations how often both sides get
	// other SVIDs while it does.
	says      = 16 << 10
	rotations = 8
	// between is how many events a reader takes from one rotation to the next.
	between = 64
	// mayKeep is what both sides together may keep of a stream: what is read ahead (at
	// most 1 MiB), and an identity or two.
	mayKeep = 5 << 19
)

// An identity that is rotated in mid-stream keeps nothing alive: neither what the
// worker has said, however far it is ahead of its reader, nor the certificates of
// before. The heap is weighed, so nothing runs beside.
//
//nolint:paralleltest // see above
func TestARotationInMidStreamFillsNoMemory(t *testing.T) {
	s := openFake(t, &fake{start: func(_ context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
		env, err := fence.FromProto(r.GetEnvelope())
		if err != nil {
			return err
		}
		f := frame(t, env, event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", says)})
		for range rotations * between {
			if err := out.Send(&workerv1.StartRunResponse{Frame: f}); err != nil {
				return err
			}
		}
		return out.Send(&workerv1.StartRunResponse{Frame: frame(t, env, event.RunFinished{StopReason: "stop"})})
	}})
	empty, kept := living(), uint64(0)
	stream := s.start(t)
	takes(t, stream, 1)
	for n := range rotations {
		s.Domain.Rotate(t)
		if n%2 == 1 {
			s.Domain.RotateCA(t)
			s.Domain.Rotate(t)
			s.Domain.ForgetOldCAs(t)
		}
		kept = max(kept, max(lasting(t.Context()), empty)-empty)
		if n < rotations-1 {
			takes(t, stream, between)
		}
	}
	takes(t, stream, between-1)
	t.Logf("%d KiB are kept of the %d that the worker said", kept>>10, rotations*between*says>>10)
	if kept > mayKeep {
		t.Errorf("%d KiB are kept, more than %d", kept>>10, mayKeep>>10)
	}
	if f, err := stream.Next(); err != nil || len(f.Events) != 1 || !f.Events[0].Type().Terminal() {
		t.Errorf("at the end: %+v, %v", f, err)
	}
	if _, err := stream.Next(); err != io.EOF { //nolint:errorlint // io.EOF is what it says, bare
		t.Errorf("after the end: %v", err)
	}
}

func takes(t *testing.T, stream worker.Stream, events int) {
	t.Helper()
	for n := range events {
		f, err := stream.Next()
		if err != nil || len(f.Events) != 1 || f.Events[0].Type().Terminal() {
			t.Fatalf("event %d: %+v, %v", n, f, err)
		}
	}
}

// lasting is what lives also a moment later: what is only being worked on is let go of.
func lasting(ctx context.Context) uint64 {
	least := living()
	for range 4 {
		select { // the worker goes as far ahead as it can
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		least = min(least, living())
	}
	return least
}

// living is what was found alive on the heap, and not what came since.
func living() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
