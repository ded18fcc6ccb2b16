package rpc_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
)

var errLost = errors.New("the reply was lost")

// A damaged object never ends cleanly: the last part stays here.
func TestDamagedObjectDoesNotEndCleanly(t *testing.T) {
	content := large(t, 2*blob.MaxChunkBytes+10)
	for name, damage := range map[string]func(path string) error{
		"first byte": func(path string) error { return edit(path, func(b []byte) []byte { b[0]++; return b }) },
		"last byte":  func(path string) error { return edit(path, func(b []byte) []byte { b[len(b)-1]++; return b }) },
		"cut":        func(path string) error { return os.Truncate(path, int64(len(content))-1) },
		"longer":     func(path string) error { return edit(path, func(b []byte) []byte { return append(b, 'x') }) },
		"gone":       os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			handle := s.downloadHandle(t, s.object(t, content))
			must(t, damage(s.blobs(t)[0]))
			e := s.stand.Envelope()
			_, got, err := download(s.ctx(t, e, handle), s.sandbox, e, handle)
			wantCode(t, err, fault.PersistenceFailed)
			if len(got) >= len(content) {
				t.Errorf("all %d bytes came", len(got))
			}
		})
	}
}

// soon is an envelope whose deadline is near.
func soon(s *rpctest.Stand) fence.Envelope {
	e := s.Envelope()
	e.Deadline = time.Now().Add(300 * time.Millisecond)
	return e
}

// A peer that stops sending holds nothing longer than the deadline that it gave.
func TestSlowSenderIsBoundedByItsDeadline(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	before := s.state(t)
	e, n := soon(s.stand), s.started.Load()
	stream, err := s.sandbox.Upload(s.ctx(t, e, handle))
	must(t, err)
	must(t, stream.Send(&filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: handle, Info: info("content"), Chunk: []byte("c")}))
	s.over(t, n)
	if after := s.state(t); after != before {
		t.Errorf("something was left behind:\n%s", after)
	}
	_, err = stream.CloseAndReceive()
	wantCode(t, err, fault.DeadlineExceeded)
}

// A peer that stops reading does not either, although more is to be sent than
// the network takes.
func TestSlowReaderIsBoundedByItsDeadline(t *testing.T) {
	s := dial(t, open(t, rpctest.NewStand(t), 32<<20))
	content := large(t, 24<<20)
	handle := s.downloadHandle(t, s.object(t, content))
	e, n := soon(s.stand), s.started.Load()
	stream, err := s.sandbox.Download(s.ctx(t, e, handle), &filebrokerv1.DownloadRequest{Envelope: e.Proto(), Handle: handle})
	must(t, err)
	_, err = stream.Receive()
	must(t, err)
	s.over(t, n)
	got := 0
	for err == nil {
		var m *filebrokerv1.DownloadResponse
		m, err = stream.Receive()
		got += len(m.GetChunk())
	}
	if isEOF(err) || got >= len(content) {
		t.Errorf("%d bytes came, and the stream ended with %v", got, err)
	}
	_ = stream.Close()
}

// Nor does one that goes away.
func TestSenderThatGoesAway(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	before := s.state(t)
	e := s.stand.Envelope()
	n := s.started.Load()
	ctx, cancel := context.WithCancel(s.ctx(t, e, handle))
	stream, err := s.sandbox.Upload(ctx)
	must(t, err)
	must(t, stream.Send(&filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: handle, Info: info("content"), Chunk: []byte("c")}))
	s.arrived(t, n)
	cancel()
	s.over(t, n)
	if after := s.state(t); after != before {
		t.Errorf("something was left behind:\n%s", after)
	}
}

func edit(path string, change func([]byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, change(b), 0o600)
}
