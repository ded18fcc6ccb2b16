package rpc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

// session is an open service with both of its callers.
type session struct {
	*opened
	control filebrokerv1connect.FileBrokerServiceClient
	sandbox filebrokerv1connect.FileBrokerServiceClient
}

func newSession(t *testing.T) *session {
	t.Helper()
	return dial(t, open(t, rpctest.NewStand(t), quotaOfTests))
}

func dial(t *testing.T, o *opened) *session {
	t.Helper()
	s, baseURL := o.stand, o.stand.Serve(t, o.served())
	return &session{
		opened:  o,
		control: filebrokerv1connect.NewFileBrokerServiceClient(s.Dial(t, baseURL, rpctest.ServiceID("filebroker"), rpctest.ServiceID("controlplane")).RPC),
		sandbox: filebrokerv1connect.NewFileBrokerServiceClient(s.Dial(t, baseURL, rpctest.ServiceID("filebroker"), rpctest.SandboxID()).RPC),
	}
}

// ctx carries a capability of the sandbox for the run of e that lists handles.
func (s *session) ctx(t *testing.T, e fence.Envelope, handles ...string) context.Context {
	t.Helper()
	return pkgrpc.WithToken(t.Context(), s.stand.Minter.Mint(capability.Claims{
		Audience: capability.FileBroker, Subject: rpctest.SandboxID(), Handles: handles,
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	}))
}

func info(content string) *filebrokerv1.ObjectInfo {
	sum := sha256.Sum256([]byte(content))
	return &filebrokerv1.ObjectInfo{Size: uint64(len(content)), Sha256: sum[:], MimeType: "text/plain", DisplayName: "notes.txt"}
}

// put sends content as one file, in parts.
func put(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, e fence.Envelope, i *filebrokerv1.ObjectInfo, content string) (*filebrokerv1.PutObjectResponse, error) {
	stream, err := c.PutObject(ctx)
	if err != nil {
		return nil, err
	}
	for n, chunk := range split(content) {
		m := &filebrokerv1.PutObjectRequest{Envelope: e.Proto(), Chunk: chunk}
		if n == 0 {
			m.Info = i
		}
		if stream.Send(m) != nil {
			break // the answer says why
		}
	}
	return stream.CloseAndReceive()
}

// putAnswer sends content as what a tool answered, in parts.
func putAnswer(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, e fence.Envelope, i *filebrokerv1.ObjectInfo, content string) (*filebrokerv1.PutResultResponse, error) {
	stream, err := c.PutResult(ctx)
	if err != nil {
		return nil, err
	}
	for n, chunk := range split(content) {
		m := &filebrokerv1.PutResultRequest{Envelope: e.Proto(), Chunk: chunk}
		if n == 0 {
			m.Info = i
		}
		if stream.Send(m) != nil {
			break // the answer says why
		}
	}
	return stream.CloseAndReceive()
}

// head announces a file of at most most bytes.
func head(most uint64) *filebrokerv1.FileHead {
	return &filebrokerv1.FileHead{MimeType: "text/plain", DisplayName: "notes.txt", MaxBytes: most}
}

// sent is what a sender says of content.
func sent(content string) *filebrokerv1.FileEnd {
	i := info(content)
	return &filebrokerv1.FileEnd{Size: i.GetSize(), Sha256: i.GetSha256()}
}

// putFileOf sends content as a file, in parts, and what it was.
func putFileOf(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, e fence.Envelope, h *filebrokerv1.FileHead, content string, end *filebrokerv1.FileEnd) (*filebrokerv1.PutFileResponse, error) {
	stream, err := c.PutFile(ctx)
	if err != nil {
		return nil, err
	}
	parts := split(content)
	for n, chunk := range parts {
		m := &filebrokerv1.PutFileRequest{Envelope: e.Proto(), Chunk: chunk}
		if n == 0 {
			m.Head = h
		}
		if n == len(parts)-1 {
			m.End = end
		}
		if stream.Send(m) != nil {
			break // the answer says why
		}
	}
	return stream.CloseAndReceive()
}

// readOf reads an object, or a range of it, to its end.
func readOf(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, r *filebrokerv1.ReadObjectRequest) (content []byte, err error) {
	stream, err := c.ReadObject(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	for {
		m, err := stream.Receive()
		if isEOF(err) {
			return content, nil
		}
		if err != nil {
			return content, err
		}
		content = append(content, m.GetChunk()...)
	}
}

// upload sends content through an upload handle.
func upload(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, e fence.Envelope, handle string, i *filebrokerv1.ObjectInfo, content string) (*filebrokerv1.UploadResponse, error) {
	stream, err := c.Upload(ctx)
	if err != nil {
		return nil, err
	}
	for n, chunk := range split(content) {
		m := &filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: handle, Chunk: chunk}
		if n == 0 {
			m.Info = i
		}
		if stream.Send(m) != nil {
			break
		}
	}
	return stream.CloseAndReceive()
}

// partOf is n bytes of content from offset on.
func partOf(content string, offset, n uint32) *filebrokerv1.PartInfo {
	return &filebrokerv1.PartInfo{Offset: uint64(offset), Size: uint64(n), Sha256: info(content[offset : offset+n]).GetSha256(), Whole: info(content)}
}

// uploadPartOf sends what is a part, in pieces.
func uploadPartOf(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, e fence.Envelope, handle string, p *filebrokerv1.PartInfo, content string) (*filebrokerv1.UploadPartResponse, error) {
	stream, err := c.UploadPart(ctx)
	if err != nil {
		return nil, err
	}
	for n, chunk := range split(content) {
		m := &filebrokerv1.UploadPartRequest{Envelope: e.Proto(), Handle: handle, Chunk: chunk}
		if n == 0 {
			m.Part = p
		}
		if stream.Send(m) != nil {
			break // the answer says why
		}
	}
	return stream.CloseAndReceive()
}

// part uploads n bytes of content, and gives where the next part begins.
func (s *session) part(t *testing.T, e fence.Envelope, handle, content string, offset, n uint32) uint32 {
	t.Helper()
	res, err := uploadPartOf(s.ctx(t, e, handle), s.sandbox, e, handle, partOf(content, offset, n), content[offset:offset+n])
	must(t, err)
	return uint32(res.GetNextOffset()) //nolint:gosec // at most 64 MiB
}

// next is where the upload goes on.
func (s *session) next(t *testing.T, handle string) (offset uint32, completed bool) {
	t.Helper()
	e := s.stand.Envelope()
	res, err := s.sandbox.UploadStatus(s.ctx(t, e, handle), &filebrokerv1.UploadStatusRequest{Envelope: e.Proto(), Handle: handle})
	must(t, err)
	return uint32(res.GetNextOffset()), res.GetCompleted() //nolint:gosec // at most 64 MiB
}

func (s *session) completeParts(t *testing.T, e fence.Envelope, handle string) (*filebrokerv1.CompleteUploadResponse, error) {
	t.Helper()
	return s.sandbox.CompleteUpload(s.ctx(t, e, handle), &filebrokerv1.CompleteUploadRequest{Envelope: e.Proto(), Handle: handle})
}

// split gives at least one part.
func split(content string) [][]byte {
	parts := [][]byte{[]byte(content[:min(len(content), blob.MaxChunkBytes)])}
	for rest := content[len(parts[0]):]; rest != ""; {
		n := min(len(rest), blob.MaxChunkBytes)
		parts, rest = append(parts, []byte(rest[:n])), rest[n:]
	}
	return parts
}

// download reads the object of a handle to its end.
func download(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, e fence.Envelope, handle string) (i *filebrokerv1.ObjectInfo, content []byte, err error) {
	stream, err := c.Download(ctx, &filebrokerv1.DownloadRequest{Envelope: e.Proto(), Handle: handle})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = stream.Close() }()
	for {
		m, err := stream.Receive()
		if isEOF(err) {
			return i, content, nil
		}
		if err != nil {
			return i, content, err
		}
		if m.GetInfo() != nil {
			i = m.GetInfo()
		}
		content = append(content, m.GetChunk()...)
	}
}

func issue(e fence.Envelope, d filebrokerv1.Direction, object string, most uint64, expires time.Time) *filebrokerv1.IssueHandleRequest {
	return &filebrokerv1.IssueHandleRequest{Envelope: e.Proto(), Direction: d, ObjectId: object, MaxBytes: most, ExpiresAt: timestamppb.New(expires)}
}

// uploadHandle is a good one for the run.
func (s *session) uploadHandle(t *testing.T, most uint64) string {
	t.Helper()
	res, err := s.control.IssueHandle(t.Context(), issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_UPLOAD, "", most, time.Now().Add(time.Minute)))
	must(t, err)
	return res.GetHandle()
}

// downloadHandle is a good one for an object.
func (s *session) downloadHandle(t *testing.T, object string) string {
	t.Helper()
	res, err := s.control.IssueHandle(t.Context(), issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_DOWNLOAD, object, 0, time.Now().Add(time.Minute)))
	must(t, err)
	return res.GetHandle()
}

// object is a stored one.
func (s *session) object(t *testing.T, content string) string {
	t.Helper()
	res, err := put(t.Context(), s.control, s.stand.Envelope(), info(content), content)
	must(t, err)
	return res.GetObjectId()
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want code %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// large is content of several parts that no compression makes small.
func large(t *testing.T, size int) string {
	t.Helper()
	var b bytes.Buffer
	for n := 0; b.Len() < size; n++ {
		sum := sha256.Sum256(fmt.Append(nil, n))
		b.Write(sum[:])
	}
	return string(b.Bytes()[:size])
}
