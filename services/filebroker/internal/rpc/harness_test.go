package rpc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue"
	"cofferdam.dev/services/filebroker/internal/rpc"
)

// quotaOfTests is small enough to be used up.
const quotaOfTests = 4 << 20

// collectAfter is how long tests keep what nothing refers to.
const collectAfter = 24 * time.Hour

// opened is a real file broker on a Stand.
type opened struct {
	stand   *rpctest.Stand
	handler http.Handler
	files   *files.Service
	hooks   *hooks
	disk    *disk
	path    string // of the catalogue
	dir     string // of the blobs
	// started and ended count requests.
	started, ended atomic.Int64
}

// open builds the service as its package does, with places to step in.
func open(t *testing.T, s *rpctest.Stand, quota int64) *opened {
	t.Helper()
	o := &opened{stand: s, path: filepath.Join(t.TempDir(), "handles.db"), dir: filepath.Join(t.TempDir(), "files")}
	entries, err := catalogue.OpenSQLite(t.Context(), o.path)
	must(t, err)
	t.Cleanup(func() { must(t, entries.Close()) })
	bucket, err := blobstore.Open(t.Context(), blobstore.Address{URL: "file://" + o.dir})
	must(t, err)
	t.Cleanup(func() { must(t, bucket.Close()) })
	o.hooks, o.disk = &hooks{Catalogue: entries}, &disk{Store: bucket}
	writer := binding.NewWriter(s.Backend, time.Now)
	guard := fence.NewGuard(writer, time.Now)
	o.files = files.New(files.Config{
		Guard: guard, Effects: binding.NewEffects(writer), Catalogue: o.hooks, Blobs: o.disk, QuotaBytes: quota, Logger: s.Logger, Now: o.hooks.now,
		Records: writer, CollectAfter: collectAfter,
	})
	o.handler, err = rpc.NewHandler(rpc.Config{
		TrustDomain: s.Domain.TrustDomain(), Logger: s.Logger, Verifier: s.Minter.Verifier(), Guard: guard, Telemetry: s.Telemetry,
		Files: o.files,
	})
	must(t, err)
	return o
}

// served is the service as a Door wants it.
func (o *opened) served() rpctest.Service {
	return rpctest.Service{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.started.Add(1)
			defer o.ended.Add(1)
			o.handler.ServeHTTP(w, r)
		}),
		ID:    rpctest.ServiceID("filebroker"),
		Allow: rpc.Callers(o.stand.Domain.TrustDomain()),
		State: o.state,
	}
}

// arrived waits for a request that started after the first n.
func (o *opened) arrived(t *testing.T, n int64) {
	t.Helper()
	o.wait(t, func() bool { return o.started.Load() > n })
}

// over waits for the end of a request that started after the first n.
func (o *opened) over(t *testing.T, n int64) {
	t.Helper()
	o.wait(t, func() bool { return o.started.Load() > n && o.started.Load() == o.ended.Load() })
}

func (o *opened) wait(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(20 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%d requests have started and %d ended", o.started.Load(), o.ended.Load())
		}
	}
}

// state is every row of the catalogue and every file of the bucket.
func (o *opened) state(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+o.path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	var out strings.Builder
	for _, query := range []string{
		"SELECT * FROM file_objects ORDER BY 1", "SELECT * FROM file_completions ORDER BY 1", "SELECT * FROM file_handles ORDER BY 1", "SELECT * FROM file_uploads ORDER BY 1",
	} {
		dump(t, db, query, &out)
	}
	for _, f := range o.blobs(t) {
		_, _ = fmt.Fprintln(&out, f)
	}
	return out.String()
}

// visible is every object that anybody can see, and what made it so.
func (o *opened) visible(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+o.path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	var out strings.Builder
	dump(t, db, "SELECT * FROM file_objects WHERE visible = 1 ORDER BY 1", &out)
	dump(t, db, "SELECT * FROM file_completions ORDER BY 1", &out)
	return out.String()
}

// blobs lists the files of the bucket, temporary ones too.
func (o *opened) blobs(t *testing.T) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
}

func dump(t *testing.T, db *sql.DB, query string, out *strings.Builder) {
	t.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), query)
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		must(t, rows.Scan(values...))
		_, _ = fmt.Fprint(out, query)
		for _, v := range values {
			if p, ok := v.(*any); ok {
				_, _ = fmt.Fprintf(out, " %v", *p)
			}
		}
		_, _ = fmt.Fprintln(out)
	}
	must(t, rows.Err())
}

// hooks is the real catalogue with places to step in, and the clock.
type hooks struct {
	files.Catalogue

	mu            sync.Mutex
	beforeStage   func()
	completeError error
	ahead         time.Duration
	gone          atomic.Bool // the database
}

var errGone = errors.New("the database has gone")

// disk is the real store of blobs on a disk that may be full or slow.
type disk struct {
	blob.Store
	room    atomic.Int64 // in bytes; 0 is enough
	written atomic.Pointer[func()]
}

func (d *disk) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := d.Store.Create(ctx, key)
	return &diskWriter{Writer: w, disk: d, room: d.room.Load()}, err
}

type diskWriter struct {
	blob.Writer
	disk *disk
	room int64
}

func (w *diskWriter) Write(p []byte) (int, error) {
	if most := w.disk.room.Load(); most > 0 {
		if w.room -= int64(len(p)); w.room < 0 {
			return 0, syscall.ENOSPC
		}
	}
	if f := w.disk.written.Swap(nil); f != nil {
		(*f)()
	}
	return w.Writer.Write(p)
}

func (h *hooks) BeforeWrite(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beforeStage = f
}

func (h *hooks) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.ahead)
}

func (h *hooks) enter() {
	h.mu.Lock()
	f := h.beforeStage
	h.beforeStage = nil
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

func (h *hooks) StageObject(ctx context.Context, o files.Object, until time.Time, q files.Quota) error {
	h.enter()
	if h.gone.Load() {
		return errGone
	}
	return h.Catalogue.StageObject(ctx, o, until, q)
}

func (h *hooks) StageHandle(ctx context.Context, x files.Handle, most int) (files.Handle, error) {
	h.enter()
	return h.Catalogue.StageHandle(ctx, x, most)
}

func (h *hooks) BeginUpload(ctx context.Context, u files.PartialUpload) (files.PartialUpload, error) {
	if h.gone.Load() {
		return files.PartialUpload{}, errGone
	}
	return h.Catalogue.BeginUpload(ctx, u)
}

func (h *hooks) AppendPart(ctx context.Context, u files.PartialUpload, p files.Part) (files.PartialUpload, error) {
	if h.gone.Load() {
		return files.PartialUpload{}, errGone
	}
	return h.Catalogue.AppendPart(ctx, u, p)
}

func (h *hooks) DropObject(ctx context.Context, id string) (bool, error) {
	if h.gone.Load() {
		return false, errGone
	}
	return h.Catalogue.DropObject(ctx, id)
}

// Complete loses its answer once where completeError is set.
func (h *hooks) Complete(ctx context.Context, c files.Completion) (files.Completion, error) {
	if h.gone.Load() {
		return files.Completion{}, errGone
	}
	stands, err := h.Catalogue.Complete(ctx, c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.completeError != nil {
		err, h.completeError = h.completeError, nil
	}
	return stands, err
}

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
