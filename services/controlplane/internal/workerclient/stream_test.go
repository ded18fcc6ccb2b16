package workerclient_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestStart(t *testing.T) {
	var got *workerv1.StartRunRequest
	s := openFake(t, &fake{start: func(ctx context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
		if a := authorization(ctx); a != "Bearer the-token" {
			t.Errorf("authorization is %q", a)
		}
		got = r
		env, err := fence.FromProto(r.GetEnvelope())
		if err != nil {
			return err
		}
		for _, f := range []*eventv1.EventFrame{
			frame(t, env, event.RunStarted{HarnessID: "native", AdapterVersion: "1"}, event.TextStarted{MessageID: "m"}),
			frame(t, env, event.RunFinished{StopReason: "stop"}),
		} {
			if err := out.Send(&workerv1.StartRunResponse{Frame: f}); err != nil {
				return err
			}
		}
		return nil
	}})
	turn := worker.Turn{
		Envelope: s.Envelope(), ConversationID: "conversation-1", Message: "hello", ClientContext: []byte(`{"tz":"UTC"}`),
		Files:  []worker.File{{Handle: "h-1", DisplayName: "a.txt", MIMEType: "text/plain", Size: 3}},
		Tokens: []worker.Token{{Audience: "memory", Token: "m"}},
	}
	stream, err := s.client.Start(bounded(t), "the-token", turn)
	must(t, err)
	first, err := stream.Next()
	must(t, err)
	env := turn.Envelope
	env.Deadline = env.Deadline.Round(0).UTC()
	if first.Envelope != env || first.CapabilityID != "jti-1" || first.BootNonce != "nonce-1" || len(first.Events) != 2 {
		t.Errorf("frame: %+v", first)
	}
	if e := first.Events[1]; e.Sequence != 1 || e.RunID != turn.Envelope.RunID || !reflect.DeepEqual(e.Data, event.TextStarted{MessageID: "m"}) {
		t.Errorf("event: %+v", e)
	}
	if f, err := stream.Next(); err != nil || len(f.Events) != 1 || !f.Events[0].Type().Terminal() {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := stream.Next(); err != io.EOF { //nolint:errorlint // io.EOF is what it says, bare
		t.Errorf("after the end: %v", err)
	}
	must(t, stream.Close())
	want := &workerv1.StartRunRequest{
		Envelope: turn.Envelope.Proto(), Tokens: []*workerv1.CallToken{{Audience: "memory", Token: "m"}},
		Input: &workerv1.TurnInput{
			ConversationId: "conversation-1", Message: "hello", ClientContext: []byte(`{"tz":"UTC"}`),
			Files: []*workerv1.InputFile{{Handle: "h-1", DisplayName: "a.txt", MimeType: "text/plain", Size: 3}},
		},
	}
	if !proto.Equal(got, want) {
		t.Errorf("sent %v\nwant %v", got, want)
	}
}

// Agents could not fetch an identity after a certificate rotation; long streams
// broke (spire 766): a stream that is open while both sides get new SVIDs, and while
// their authority is replaced, comes to its own end, and the next one as well.
func TestARotationInMidStreamBreaksNothing(t *testing.T) {
	rotated := make(chan struct{})
	s := openFake(t, &fake{start: func(_ context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
		env, err := fence.FromProto(r.GetEnvelope())
		if err != nil {
			return err
		}
		if err := out.Send(&workerv1.StartRunResponse{Frame: frame(t, env, event.TextStarted{MessageID: "m"})}); err != nil {
			return err
		}
		<-rotated
		return out.Send(&workerv1.StartRunResponse{Frame: frame(t, env, event.RunFinished{StopReason: "stop"})})
	}})
	for n := range 2 {
		stream := s.start(t)
		if _, err := stream.Next(); err != nil {
			t.Fatalf("stream %d: %v", n, err)
		}
		if n == 0 {
			s.Domain.Rotate(t)
			s.Domain.RotateCA(t)
			s.Domain.Rotate(t)
			s.Domain.ForgetOldCAs(t)
			close(rotated)
		}
		if f, err := stream.Next(); err != nil || len(f.Events) != 1 || !f.Events[0].Type().Terminal() {
			t.Errorf("stream %d: %+v, %v", n, f, err)
		}
		if _, err := stream.Next(); err != io.EOF { //nolint:errorlint // io.EOF is what it says, bare
			t.Errorf("stream %d after its end: %v", n, err)
		}
		must(t, stream.Close())
	}
}

// What a frame may not be is the worker's breach of the protocol, not an outage.
func TestFramesThatAreRefused(t *testing.T) {
	text := event.TextStarted{MessageID: "m"}
	for name, change := range map[string]func(f *eventv1.EventFrame) *eventv1.EventFrame{
		"no frame":             func(*eventv1.EventFrame) *eventv1.EventFrame { return nil },
		"no envelope":          func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Envelope = nil; return f },
		"another protocol":     func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Envelope.ProtocolVersion = 2; return f },
		"no deadline":          func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Envelope.Deadline = nil; return f },
		"an absurd deadline":   func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Envelope.Deadline.Nanos = -1; return f },
		"no event":             func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Events = nil; return f },
		"an event of nothing":  func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Events[0].Data = nil; return f },
		"an event of tomorrow": func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Events[0].Version = 2; return f },
		"a run with a slash":   func(f *eventv1.EventFrame) *eventv1.EventFrame { f.Events[0].RunId = "a/b"; return f },
		"too many events": func(f *eventv1.EventFrame) *eventv1.EventFrame {
			for len(f.Events) < 65 {
				f.Events = append(f.Events, f.Events[0])
			}
			return f
		},
		"a huge frame": func(f *eventv1.EventFrame) *eventv1.EventFrame {
			f.BootNonce = strings.Repeat("n", 5<<20)
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openFake(t, &fake{start: func(_ context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
				env, err := fence.FromProto(r.GetEnvelope())
				if err != nil {
					return err
				}
				return out.Send(&workerv1.StartRunResponse{Frame: change(frame(t, env, text))})
			}})
			if f, err := s.start(t).Next(); !fault.Is(err, fault.Protocol) {
				t.Errorf("took %+v, %v", f, err)
			}
		})
	}
}

// The contract drops an empty delta, and what stands beside it stays.
func TestAnEmptyDeltaIsDropped(t *testing.T) {
	s := openFake(t, &fake{start: func(_ context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
		env, err := fence.FromProto(r.GetEnvelope())
		if err != nil {
			return err
		}
		f := frame(t, env, event.TextStarted{MessageID: "m"}, event.TextDelta{MessageID: "m", Delta: "x"}, event.TextFinished{MessageID: "m"})
		f.Events[1].GetTextDelta().Delta = ""
		return out.Send(&workerv1.StartRunResponse{Frame: f})
	}})
	f, err := s.start(t).Next()
	if err != nil || len(f.Events) != 2 || f.Events[1].Type() != event.TypeTextFinished {
		t.Errorf("%+v, %v", f.Events, err)
	}
}

// A stream that is cut is never taken for one that ended (ag-ui 2300).
func TestACutStreamDoesNotEnd(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(w http.ResponseWriter, frame []byte)
		want  []fault.Code
	}{
		"without its end": {func(http.ResponseWriter, []byte) {}, nil},
		"in the middle of a frame": {func(w http.ResponseWriter, f []byte) {
			_, _ = w.Write(f[:len(f)/2])
		}, nil},
		"by a reset": {func(w http.ResponseWriter, _ []byte) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, nil},
		"by a length that nobody could hold": {func(w http.ResponseWriter, _ []byte) {
			_, _ = w.Write([]byte{0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3})
		}, []fault.Code{fault.Protocol}},
		"by what is not protobuf": {func(w http.ResponseWriter, _ []byte) {
			_, _ = w.Write(enveloped(0, []byte("\xff\xff\xff\xff")))
		}, []fault.Code{fault.Protocol}},
		"by compression that nobody asked for": {func(w http.ResponseWriter, f []byte) {
			_, _ = w.Write(enveloped(1, f))
		}, nil},
		"by an end that is not JSON": {func(w http.ResponseWriter, _ []byte) {
			_, _ = w.Write(enveloped(2, []byte("bye")))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, func(s *rpctest.Stand) http.Handler {
				body, err := proto.Marshal(&workerv1.StartRunResponse{Frame: frame(t, s.Envelope(), event.TextStarted{MessageID: "m"})})
				must(t, err)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "application/connect+proto")
					_, _ = w.Write(enveloped(0, body))
					c.serve(w, enveloped(0, body))
				})
			})
			stream := s.start(t)
			if _, err := stream.Next(); err != nil {
				t.Fatalf("the first frame: %v", err)
			}
			f, err := stream.Next()
			var known *fault.Error
			if !errors.As(err, &known) || errors.Is(err, io.EOF) {
				t.Fatalf("took %+v, %v, which is an end", f, err)
			}
			for _, want := range c.want {
				if known.Code() != want {
					t.Errorf("%v, want %s", err, want)
				}
			}
		})
	}
}

func enveloped(flags byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(body))), body...) //nolint:gosec // a few bytes
}

// An answer that is not a stream of events is none.
func TestAnswersThatAreNoStream(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusFound)
		},
		"bad gateway": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"nothing":     func(http.ResponseWriter, *http.Request) {},
	} {
		s := open(t, func(*rpctest.Stand) http.Handler { return serve })
		for op, call := range calls(s, s.client) {
			var known *fault.Error
			if err := call(bounded(t)); !errors.As(err, &known) {
				t.Errorf("%s, %s: %v", name, op, err)
			}
		}
	}
}

// Closing a stream and ending its context both reach the worker, which stops.
func TestHangingUpReachesTheWorker(t *testing.T) {
	for name, hangUp := range map[string]func(cancel func(), s worker.Stream){
		"close":   func(_ func(), s worker.Stream) { _ = s.Close() },
		"context": func(cancel func(), _ worker.Stream) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s := openFake(t, &fake{start: func(ctx context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
				env, err := fence.FromProto(r.GetEnvelope())
				if err == nil {
					err = out.Send(&workerv1.StartRunResponse{Frame: frame(t, env, event.TextStarted{MessageID: "m"})})
				}
				<-ctx.Done()
				close(gone)
				return err
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := s.client.Start(ctx, "token", s.turn())
			must(t, err)
			if _, err := stream.Next(); err != nil {
				t.Fatal(err)
			}
			hangUp(cancel, stream)
			select {
			case <-gone:
			case <-time.After(patience):
				t.Fatal("the worker was not told")
			}
			if _, err := stream.Next(); err == nil || err == io.EOF { //nolint:errorlint // io.EOF would be an end
				t.Errorf("next after hanging up: %v", err)
			}
			_ = stream.Close()
		})
	}
}
