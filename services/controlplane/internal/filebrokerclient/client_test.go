package filebrokerclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/filebrokerclient"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a file broker that keeps one file.
type fake struct {
	filebrokerv1connect.FileBrokerServiceHandler // what the control plane does not call

	refuse error
	// early makes it refuse before it has read anything.
	early bool

	info    *filebrokerv1.ObjectInfo
	content []byte
	parts   int
	keys    map[string]bool
	issued  *filebrokerv1.IssueHandleRequest
	// named is the content of the last request.
	named *filebrokerv1.ContentInfo
	// lie is what it says of a file instead of the truth.
	lie *filebrokerv1.ObjectInfo
	// short is how much of a file it keeps to itself.
	short int
}

func (f *fake) PutObject(_ context.Context, in filebrokerv1connect.FileBrokerServicePutObjectServerStream) (*filebrokerv1.PutObjectResponse, error) {
	if f.early {
		return nil, f.refuse
	}
	f.parts = 0
	for {
		m, err := in.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		f.key(m.GetEnvelope())
		if m.GetInfo() != nil {
			if f.parts > 0 {
				return nil, fault.New(fault.InvalidRequest, "test")
			}
			f.info = m.GetInfo()
		}
		f.parts++
		f.content = append(f.content, m.GetChunk()...)
	}
	if f.refuse != nil {
		return nil, f.refuse
	}
	return &filebrokerv1.PutObjectResponse{ObjectId: "object-1"}, nil
}

func (f *fake) IssueHandle(_ context.Context, r *filebrokerv1.IssueHandleRequest) (*filebrokerv1.IssueHandleResponse, error) {
	f.key(r.GetEnvelope())
	f.issued = r
	return &filebrokerv1.IssueHandleResponse{Handle: "handle-1"}, nil
}

func (f *fake) key(e *fencev1.Envelope) {
	if f.keys == nil {
		f.keys = map[string]bool{}
	}
	f.keys[e.GetIdempotencyKey()] = true
}

var errUnused = fault.New(fault.NotImplemented, "test")

func (*fake) Download(context.Context, *filebrokerv1.DownloadRequest, filebrokerv1connect.FileBrokerServiceDownloadServerStream) error {
	return errUnused
}

func (*fake) Upload(context.Context, filebrokerv1connect.FileBrokerServiceUploadServerStream) (*filebrokerv1.UploadResponse, error) {
	return nil, errUnused
}

func open(t *testing.T, as string, f *fake) (*rpctest.Stand, *filebrokerclient.Client) {
	t.Helper()
	s := rpctest.NewStand(t)
	allow := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}
	policy := rpc.Policy{Callers: allow, Fence: rpc.RunFence}
	server := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		filebrokerv1connect.FileBrokerServicePutObjectProcedure: policy, filebrokerv1connect.FileBrokerServiceIssueHandleProcedure: policy,
		filebrokerv1connect.FileBrokerServicePutContentProcedure: {Callers: allow}, filebrokerv1connect.FileBrokerServiceKeepContentProcedure: {Callers: allow},
		filebrokerv1connect.FileBrokerServicePutFileProcedure:    {Callers: allow, Fence: rpc.LeaseFence},
		filebrokerv1connect.FileBrokerServiceStatObjectProcedure: {Callers: allow}, filebrokerv1connect.FileBrokerServiceReadObjectProcedure: {Callers: allow},
	}, filebrokerv1.File_harness_filebroker_v1_filebroker_proto))
	filebrokerv1connect.RegisterFileBrokerServiceHandler(server.Connect(), f)
	h, err := server.Handler()
	if err != nil {
		t.Fatal(err)
	}
	url := s.Serve(t, rpctest.Service{Handler: h, ID: rpctest.ServiceID(as), Allow: allow})
	return s, filebrokerclient.New(s.Dial(t, url, rpctest.ServiceID("filebroker"), rpctest.ServiceID("controlplane")).RPC)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const chunk = 256 << 10

// A file arrives whole, in parts of at most 256 KiB that are one effect, and its
// handle ends with the run.
func TestPut(t *testing.T) {
	for name, c := range map[string]struct {
		size  uint32
		parts int
	}{
		"nothing":           {0, 1},
		"a byte":            {1, 1},
		"one part":          {chunk, 1},
		"one byte too many": {chunk + 1, 2},
		"many parts":        {5*chunk + 7, 6},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			s, client := open(t, "filebroker", f)
			data := bytes.Repeat([]byte("cofferdam"), int(c.size/9+1))[:c.size]
			env := s.Envelope()
			got, err := client.Put(bounded(t), env, runs.InlineFile{Name: "a.txt", MIMEType: "text/plain", Data: data})
			if err != nil || (got != worker.File{Handle: "handle-1", DisplayName: "a.txt", MIMEType: "text/plain", Size: uint64(c.size)}) {
				t.Fatalf("%+v, %v", got, err)
			}
			sum := sha256.Sum256(data)
			if !bytes.Equal(f.content, data) || f.parts != c.parts || f.info.GetSize() != uint64(c.size) || !bytes.Equal(f.info.GetSha256(), sum[:]) ||
				f.info.GetDisplayName() != "a.txt" || f.info.GetMimeType() != "text/plain" {
				t.Errorf("%d bytes in %d parts, %v", len(f.content), f.parts, f.info)
			}
			if f.issued.GetObjectId() != "object-1" || f.issued.GetDirection() != filebrokerv1.Direction_DIRECTION_DOWNLOAD || !f.issued.GetExpiresAt().AsTime().Equal(env.Deadline) {
				t.Errorf("issued %v", f.issued)
			}
			if len(f.keys) != 2 { // the upload and the handle
				t.Errorf("idempotency keys: %v", f.keys)
			}
		})
	}
}

// Two files of one run are two effects.
func TestEachFileIsAnEffectOfItsOwn(t *testing.T) {
	f := &fake{}
	s, client := open(t, "filebroker", f)
	env := s.Envelope()
	for range 2 {
		if _, err := client.Put(bounded(t), env, runs.InlineFile{Name: "a", MIMEType: "text/plain", Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.keys) != 4 {
		t.Errorf("idempotency keys: %v", f.keys)
	}
}

// The broker's refusal arrives, also one that came before the file was sent.
func TestRefusals(t *testing.T) {
	file := runs.InlineFile{Name: "a", MIMEType: "text/plain", Data: make([]byte, 20*chunk)}
	for _, early := range []bool{true, false} {
		f := &fake{refuse: fault.New(fault.RequestTooLarge, "test"), early: early}
		s, client := open(t, "filebroker", f)
		if got, err := client.Put(bounded(t), s.Envelope(), file); !fault.Is(err, fault.RequestTooLarge) || got.Handle != "" || f.issued != nil {
			t.Errorf("early %v: %+v, %v", early, got, err)
		}
	}
	f := &fake{}
	s, client := open(t, "filebroker", f)
	env := s.Envelope()
	s.Replace(t)
	if _, err := client.Put(bounded(t), env, file); !fault.Is(err, fault.StaleLease) || len(f.content) > 0 {
		t.Errorf("a stale lease: %v, %d bytes", err, len(f.content))
	}
	_, client = open(t, "modelproxy", &fake{})
	if _, err := client.Put(bounded(t), env, file); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("another service: %v", err)
	}
}

func TestTheContextEndsAPut(t *testing.T) {
	s, client := open(t, "filebroker", &fake{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Put(ctx, s.Envelope(), runs.InlineFile{Name: "a", MIMEType: "text/plain"}); !fault.Is(err, fault.Cancelled) {
		t.Errorf("put: %v", err)
	}
}
