package rpc_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/filebroker/internal/files"
)

func contentOf(text string) *filebrokerv1.ContentInfo {
	sum := sha256.Sum256([]byte(text))
	return &filebrokerv1.ContentInfo{Size: uint64(len(text)), Sha256: sum[:]}
}

// putContentOf says what will come, and sends text.
func putContentOf(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, i *filebrokerv1.ContentInfo, text string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.PutContent(ctx)
	if err != nil {
		return err
	}
	for n, chunk := range split(text) {
		m := &filebrokerv1.PutContentRequest{Chunk: chunk}
		if n == 0 {
			m.Info = i
		}
		if err := stream.Send(m); err != nil {
			break // the answer says why
		}
	}
	_, err = stream.CloseAndReceive()
	return err
}

func keepContentOf(ctx context.Context, c filebrokerv1connect.FileBrokerServiceClient, i *filebrokerv1.ContentInfo) error {
	_, err := c.KeepContent(ctx, &filebrokerv1.KeepContentRequest{Content: i})
	return err
}

// content puts one.
func (s *session) content(t *testing.T, text string) {
	t.Helper()
	must(t, putContentOf(t.Context(), s.control, contentOf(text), text))
}

// issueContents asks for a handle of texts.
func issueContents(e fence.Envelope, texts ...string) *filebrokerv1.IssueHandleRequest {
	r := &filebrokerv1.IssueHandleRequest{Envelope: e.Proto(), Direction: filebrokerv1.Direction_DIRECTION_DOWNLOAD, ExpiresAt: timestamppb.New(e.Deadline)}
	for _, text := range texts {
		r.Contents = append(r.Contents, contentOf(text).GetSha256())
	}
	return r
}

func (s *session) contentsHandle(t *testing.T, texts ...string) string {
	t.Helper()
	res, err := s.control.IssueHandle(t.Context(), issueContents(s.stand.Envelope(), texts...))
	must(t, err)
	return res.GetHandle()
}

// What an agent has is stored once, whoever puts it how often, and counts for no quota.
func TestAContentIsStoredOnce(t *testing.T) {
	s := newSession(t)
	text := large(t, quotaOfTests+1)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := putContentOf(t.Context(), s.control, contentOf(text), text); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.content(t, text)
	if blobs := s.blobs(t); len(blobs) != 1 {
		t.Errorf("the bucket has %q", blobs)
	}
	s.object(t, "of the conversation")
}

func TestContentsThatAreNotWhatTheySay(t *testing.T) {
	s := newSession(t)
	before := s.state(t)
	too := contentOf("content")
	too.Size = files.MaxContentBytes + 1
	for name, c := range map[string]struct {
		info *filebrokerv1.ContentInfo
		text string
		code fault.Code
	}{
		"another":     {contentOf("content"), "c0ntent", fault.InvalidRequest},
		"shorter":     {contentOf("content"), "conten", fault.InvalidRequest},
		"longer":      {contentOf("content"), "contents", fault.RequestTooLarge},
		"too large":   {too, "content", fault.InvalidRequest},
		"no digest":   {&filebrokerv1.ContentInfo{Size: 7}, "content", fault.InvalidRequest},
		"not said":    {nil, "content", fault.InvalidRequest},
		"said, empty": {contentOf("content"), "", fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, putContentOf(t.Context(), s.control, c.info, c.text), c.code)
		})
	}
	wantCode(t, keepContentOf(t.Context(), s.control, contentOf("content")), fault.NotFound)
	if after := s.state(t); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	s.content(t, "content")
	other := contentOf("content")
	other.Size++
	wantCode(t, keepContentOf(t.Context(), s.control, other), fault.NotFound)
	wantCode(t, putContentOf(t.Context(), s.control, contentOf("content"), "c0ntent"), fault.InvalidRequest) // also of one that is there
}

// F11: a worker reads the contents of its agent, each by its number in the handle of its
// own run and generation, and nobody else does.
func TestContentsAreReadThroughTheHandleOfARun(t *testing.T) {
	s := newSession(t)
	texts := []string{"the skill", "", large(t, 3*blob.MaxChunkBytes+1)}
	for _, text := range texts {
		s.content(t, text)
	}
	s.content(t, "of another agent")
	handle := s.contentsHandle(t, texts...)
	if again := s.contentsHandle(t, texts...); again == handle {
		t.Error("two requests got one handle")
	}
	e := s.stand.Envelope()
	for n, want := range texts {
		i, got, err := download(s.ctx(t, e, handle), s.sandbox, e, fmt.Sprintf("%s.%d", handle, n))
		if err != nil || string(got) != want || string(i.GetSha256()) != string(contentOf(want).GetSha256()) || i.GetSize() != uint64(len(want)) {
			t.Errorf("content %d: %d bytes, %v, %v", n, len(got), i, err)
		}
	}
	for _, c := range []struct {
		name string
		code fault.Code
	}{
		{handle, fault.HandleInvalid},
		{handle + ".3", fault.HandleInvalid},
		{handle + ".-1", fault.HandleDenied},
		{handle + ".00", fault.HandleDenied},
		{handle + ".", fault.HandleDenied},
		{handle + ".0.0", fault.HandleDenied},
		{handle + ".9223372036854775808", fault.HandleDenied},
	} {
		_, _, err := download(s.ctx(t, e, handle), s.sandbox, e, c.name)
		wantCode(t, err, c.code)
	}
	// A capability that does not list it, and one of another conversation that does.
	_, _, err := download(s.ctx(t, e, "fh_other"), s.sandbox, e, handle+".0")
	wantCode(t, err, fault.HandleDenied)
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" }).Envelope()
	_, _, err = download(s.ctx(t, other, handle), s.sandbox, other, handle+".0")
	wantCode(t, err, fault.HandleDenied)
	// An upload cannot be made with it, and an upload handle has no contents.
	_, err = upload(s.ctx(t, e, handle), s.sandbox, e, handle+".0", info("content"), "content")
	wantCode(t, err, fault.HandleDenied)
	up := s.uploadHandle(t, 10)
	_, err = upload(s.ctx(t, e, up), s.sandbox, e, up+".0", info("content"), "content")
	wantCode(t, err, fault.HandleInvalid)
	// The next generation has a handle of its own.
	next := s.nextGeneration(t)
	_, _, err = download(s.ctx(t, next, handle), s.sandbox, next, handle+".0")
	wantCode(t, err, fault.HandleDenied)
	res, err := s.control.IssueHandle(t.Context(), issueContents(next, texts...))
	must(t, err)
	next.IdempotencyKey = "download"
	if _, got, err := download(s.ctx(t, next, res.GetHandle()), s.sandbox, next, res.GetHandle()+".0"); err != nil || string(got) != texts[0] {
		t.Errorf("on the next generation: %q, %v", got, err)
	}
}

// nextGeneration ends the run, replaces the lease and starts another run.
func (s *session) nextGeneration(t *testing.T) fence.Envelope {
	t.Helper()
	s.stand.EndRun(t)
	s.stand.Replace(t)
	e := s.stand.Envelope()
	e.Generation, e.RunID = s.stand.Record(t).Generation, "run_of_the_next"
	_, err := s.stand.Writer.Start(t.Context(), binding.StartParams{
		BindingID: e.BindingID, RunID: e.RunID, RequestID: "request-start", KeyDigest: "next", ContentDigest: "content", Epoch: e.Epoch, Deadline: e.Deadline, Owner: "cp-test",
	})
	must(t, err)
	return e
}

// The same request has the same handle, whichever replica sends it.
func TestTheSameBindHasTheSameHandle(t *testing.T) {
	s := newSession(t)
	s.content(t, "a")
	s.content(t, "b")
	e := s.stand.Envelope()
	e.IdempotencyKey = "agent-contents"
	first, err := s.control.IssueHandle(t.Context(), issueContents(e, "a", "b"))
	must(t, err)
	before := s.state(t)
	again, err := s.control.IssueHandle(t.Context(), issueContents(e, "a", "b"))
	if err != nil || again.GetHandle() != first.GetHandle() || s.state(t) != before {
		t.Errorf("got %v and %v, %v", first, again, err)
	}
	_, err = s.control.IssueHandle(t.Context(), issueContents(e, "b", "a"))
	wantCode(t, err, fault.IdempotencyConflict)
}

func TestIssueOfContentsThatCannotBe(t *testing.T) {
	s := newSession(t)
	s.content(t, "content")
	object := s.object(t, "an object")
	for name, c := range map[string]struct {
		change func(*filebrokerv1.IssueHandleRequest)
		code   fault.Code
	}{
		"not there": {func(r *filebrokerv1.IssueHandleRequest) {
			r.Contents = append(r.Contents, contentOf("none").GetSha256())
		}, fault.NotFound},
		"twice":      {func(r *filebrokerv1.IssueHandleRequest) { r.Contents = append(r.Contents, r.GetContents()[0]) }, fault.InvalidRequest},
		"no digest":  {func(r *filebrokerv1.IssueHandleRequest) { r.Contents[0] = r.GetContents()[0][1:] }, fault.InvalidRequest},
		"an object":  {func(r *filebrokerv1.IssueHandleRequest) { r.ObjectId = object }, fault.InvalidRequest},
		"single use": {func(r *filebrokerv1.IssueHandleRequest) { r.SingleUse = true }, fault.InvalidRequest},
		"an upload": {func(r *filebrokerv1.IssueHandleRequest) {
			r.Direction, r.MaxBytes = filebrokerv1.Direction_DIRECTION_UPLOAD, 10
		}, fault.InvalidRequest},
		"too many": {func(r *filebrokerv1.IssueHandleRequest) {
			for n := range files.MaxHandleContents {
				r.Contents = append(r.Contents, contentOf(fmt.Sprint(n)).GetSha256())
			}
		}, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			r := issueContents(s.stand.Envelope(), "content")
			c.change(r)
			_, err := s.control.IssueHandle(t.Context(), r)
			wantCode(t, err, c.code)
		})
	}
}

// A content whose blob is not what it was never ends cleanly.
func TestADamagedContentIsNotSent(t *testing.T) {
	s := newSession(t)
	s.content(t, "content")
	handle, e := s.contentsHandle(t, "content"), s.stand.Envelope()
	must(t, os.WriteFile(s.blobs(t)[0], []byte("c0ntent"), 0o600))
	_, _, err := download(s.ctx(t, e, handle), s.sandbox, e, handle+".0")
	wantCode(t, err, fault.PersistenceFailed)
}

// F10: what a version of an agent names stays, and what none came to name goes, with its
// blob; who puts something that is being collected has it afterwards.
func TestContentsAreCollected(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		put := func(s *files.Service, text string) error {
			return s.PutContent(t.Context(), blob.Of([]byte(text)), once(text))
		}
		for _, text := range []string{"kept", "in a handle", "unused", "put again", "raced"} {
			must(t, put(w.now(), text))
		}
		must(t, w.now().KeepContent(t.Context(), blob.Of([]byte("kept"))))
		issue := func(text string) error {
			_, err := w.now().Issue(t.Context(), w.stand.Grant(t, w.stand.Envelope()), files.Issue{
				Direction: files.DirectionDownload, Contents: [][sha256.Size]byte{sha256.Sum256([]byte(text))}, ExpiresAt: time.Now().Add(time.Minute),
			})
			return err
		}
		must(t, issue("in a handle"))
		if c := w.collect(t, collectAfter-time.Hour); c != (files.Collected{}) {
			t.Errorf("collected before the time: %+v", c)
		}
		must(t, put(w.service(w.entries, w.blobs, collectAfter), "put again"))
		// Between the look and the removal somebody puts it again.
		raced := &racing{Catalogue: w.entries, before: func() { must(t, put(w.service(w.entries, w.blobs, collectAfter+time.Hour), "raced")) }}
		c, err := w.service(raced, w.blobs, collectAfter+time.Hour).Collect(t.Context())
		must(t, err)
		if c != (files.Collected{Contents: 1}) {
			t.Errorf("collected %+v", c)
		}
		wantCode(t, w.now().KeepContent(t.Context(), blob.Of([]byte("unused"))), fault.NotFound)
		for _, text := range []string{"kept", "in a handle", "put again", "raced"} {
			must(t, w.now().KeepContent(t.Context(), blob.Of([]byte(text))))
		}
		if n := w.contentBlobs(t); n != 4 {
			t.Errorf("%d blobs are left of 4 contents", n)
		}
		if c := w.collect(t, 100*collectAfter); c != (files.Collected{}) {
			t.Errorf("collected of what is kept: %+v", c)
		}
		must(t, put(w.now(), "unused"))
		must(t, issue("unused"))
	})
}

// Whoever was killed between a blob and its entry leaves a blob, which goes.
func TestABlobWithoutItsContentIsCollected(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		content := blob.Of([]byte("content"))
		killed := &racing{Catalogue: w.entries, addError: errLost}
		wantCode(t, w.service(killed, w.blobs, 0).PutContent(t.Context(), content, once("content")), fault.PersistenceFailed)
		must(t, w.now().PutContent(t.Context(), content, once("content")))
		must(t, w.now().KeepContent(t.Context(), content))
		if n := w.contentBlobs(t); n != 2 {
			t.Fatalf("%d blobs", n)
		}
		if c := w.collect(t, 2*time.Hour); c != (files.Collected{Strays: 1}) {
			t.Errorf("collected %+v", c)
		}
		var got strings.Builder
		must(t, w.blobs.Each(t.Context(), "contents", func(e blob.Entry) error { got.WriteString(e.Key); return nil }))
		c, err := w.entries.Content(t.Context(), content.SHA256)
		if err != nil || !strings.HasSuffix(got.String(), "/"+c.BlobID) {
			t.Errorf("%s is left of %+v, %v", got.String(), c, err)
		}
	})
}

func (w *world) contentBlobs(t *testing.T) (n int) {
	t.Helper()
	must(t, w.blobs.Each(t.Context(), "contents", func(blob.Entry) error { n++; return nil }))
	return n
}

// racing does something before a content is retired, once, or loses it instead of adding
// it.
type racing struct {
	files.Catalogue

	before   func()
	addError error
}

func (r *racing) RetireContent(ctx context.Context, sum [sha256.Size]byte, before time.Time) (bool, error) {
	if f := r.before; f != nil {
		r.before = nil
		f()
	}
	return r.Catalogue.RetireContent(ctx, sum, before)
}

func (r *racing) AddContent(ctx context.Context, c files.Content) (files.Content, error) {
	if r.addError != nil {
		return files.Content{}, r.addError
	}
	return r.Catalogue.AddContent(ctx, c)
}
