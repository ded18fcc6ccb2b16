package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/worker"
)

const saveInC1 = "/api/v1/files?agent_id=demo&conversation_id=c1"

// storing is a request of user-1 that sends a file as it is.
func (f *fixture) storing(t *testing.T, path, mime string, content []byte) *http.Request {
	t.Helper()
	r := f.request(t, http.MethodPost, path, string(content))
	r.Header.Set("Content-Type", mime)
	return r
}

type storedFile struct {
	FileID string `json:"file_id"`
	SHA256 string `json:"sha256"`
	Size   int    `json:"size"`
}

func (f *fixture) save(t *testing.T, r *http.Request, content []byte) storedFile {
	t.Helper()
	a := f.send(t, r)
	var s storedFile
	a.json(t, &s)
	sum := sha256.Sum256(content)
	if a.status != http.StatusCreated || s.FileID == "" || s.Size != len(content) || s.SHA256 != hex.EncodeToString(sum[:]) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return s
}

// form is a body with parts, each of a name and a filename.
func form(t *testing.T, content []byte, parts ...[2]string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", `form-data; name="`+p[0]+`"; filename="`+p[1]+`"`)
		h.Set("Content-Type", "image/png")
		part, err := w.CreatePart(h)
		if err == nil {
			_, err = part.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

func TestAFileComesBackAsItWasStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	content := bytes.Repeat([]byte("0123456789\n"), 60_000)
	for name, c := range map[string]struct {
		path, mime, body string
		disposition      string
		served           string
	}{
		"as it is": {saveInC1 + "&name=no%CC%82tes.txt", "text/plain; charset=utf-8", "", "attachment; filename*=utf-8''no%CC%82tes.txt", "text/plain"},
		"no name":  {saveInC1, "text/html", "", "attachment; filename=file", "application/octet-stream"},
		"a form":   {saveInC1, "form", "a b.png", `attachment; filename="a b.png"`, "image/png"},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.storing(t, c.path, c.mime, content)
			if c.mime == "form" {
				body, mime := form(t, content, [2]string{"file", c.body})
				r = f.storing(t, c.path, mime, []byte(body))
			}
			s := f.save(t, r, content)
			a := f.get(t, "/api/v1/files/"+s.FileID)
			if a.status != http.StatusOK || !bytes.Equal(a.body, content) {
				t.Errorf("%d, %d bytes", a.status, len(a.body))
			}
			for header, want := range map[string]string{
				"Content-Type": c.served, "Content-Disposition": c.disposition, "X-Content-Type-Options": "nosniff",
				"Cache-Control": "private, no-store", "Content-Security-Policy": "default-src 'none'; sandbox", "ETag": `"` + s.SHA256 + `"`,
			} {
				if got := a.header.Get(header); got != want {
					t.Errorf("%s: %s, want %s", header, got, want)
				}
			}
		})
	}
}

func TestRangesOfAFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	content := []byte("0123456789")
	s := f.save(t, f.storing(t, saveInC1, "text/plain", content), content)
	empty := f.save(t, f.storing(t, saveInC1, "text/plain", nil), nil)
	for _, c := range []struct {
		id, asks, ifRange string
		status            int
		body, is          string
	}{
		{s.FileID, "bytes=2-4", "", http.StatusPartialContent, "234", "bytes 2-4/10"},
		{s.FileID, "bytes=7-", "", http.StatusPartialContent, "789", "bytes 7-9/10"},
		{s.FileID, "bytes=-1", "", http.StatusPartialContent, "9", "bytes 9-9/10"},
		{s.FileID, "bytes=2-4", `"` + s.SHA256 + `"`, http.StatusPartialContent, "234", "bytes 2-4/10"},
		{s.FileID, "bytes=2-4", `"another"`, http.StatusOK, "0123456789", ""},
		{s.FileID, "bytes=0-1,3-4", "", http.StatusOK, "0123456789", ""},
		{s.FileID, "bytes=10-", "", http.StatusRequestedRangeNotSatisfiable, "", "bytes */10"},
		{empty.FileID, "", "", http.StatusOK, "", ""},
		{empty.FileID, "bytes=0-", "", http.StatusRequestedRangeNotSatisfiable, "", "bytes */0"},
	} {
		r := f.request(t, http.MethodGet, "/api/v1/files/"+c.id, "")
		if c.asks != "" {
			r.Header.Set("Range", c.asks)
		}
		if c.ifRange != "" {
			r.Header.Set("If-Range", c.ifRange)
		}
		a := f.send(t, r)
		if c.status == http.StatusRequestedRangeNotSatisfiable {
			refused(t, a, c.status, fault.InvalidRequest, "Range: ")
		} else if a.status != c.status || string(a.body) != c.body {
			t.Errorf("%s: %d %q", c.asks, a.status, a.body)
		}
		if got := a.header.Get("Content-Range"); got != c.is {
			t.Errorf("%s: Content-Range is %q, want %q", c.asks, got, c.is)
		}
	}
	r := f.request(t, http.MethodHead, "/api/v1/files/"+s.FileID, "")
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK || res.ContentLength != 10 {
		t.Errorf("HEAD: %d, %d bytes", res.StatusCode, res.ContentLength)
	}
}

// Another caller's file is one that is not there, and is in nobody else's run.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	s := f.save(t, f.storing(t, saveInC1, "text/plain", []byte("mine")), []byte("mine"))
	theirs := f.send(t, f.requestTo(t, f.public, "user-2", http.MethodGet, "/api/v1/files/"+s.FileID, ""))
	none := f.get(t, "/api/v1/files/obj_nobody_has_this")
	for _, a := range []answer{theirs, none, f.get(t, "/api/v1/files/a%20b")} {
		refused(t, a, http.StatusNotFound, fault.NotFound, "")
	}
	if a, b := theirs.fault(t), none.fault(t); a.Detail != b.Detail || a.Message != b.Message {
		t.Errorf("one can tell them apart: %s, %s", theirs.body, none.body)
	}
	for subject, conversation := range map[string]string{"user-2": "c1", "user-1": "c2"} {
		a := f.send(t, f.requestTo(t, f.public, subject, http.MethodPost, "/api/v1/runs", `{"agent_id":"demo","conversation_id":"`+conversation+`","message":"hi","files":[{"file_id":"`+s.FileID+`"}]}`))
		refused(t, a, http.StatusNotFound, fault.NotFound, "files[0].file_id: ")
	}
	f.grants.revoke("user-1", "can_invoke", "agent:demo")
	refused(t, f.send(t, f.storing(t, saveInC1, "text/plain", []byte("x"))), http.StatusForbidden, fault.AccessDenied, "")
}

// A stored file is given to a run, by either route, beside one that comes with it.
func TestARunIsGivenAStoredFile(t *testing.T) {
	t.Parallel()
	turns := make(chan worker.Turn, 2)
	f := newFixture(t, options{script: func(s **runstest.Stack) runstest.Script {
		play := answers("Hello.")(s)
		return func(ctx context.Context, p *runstest.Play) error {
			turns <- p.Turn
			return play(ctx, p)
		}
	}})
	s := f.save(t, f.storing(t, saveInC1+"&name=a.txt", "text/plain", []byte("words")), []byte("words"))
	files := `"files":[{"file_id":"` + s.FileID + `"},{"name":"b.txt","mime_type":"text/plain","data":"eA=="}]`
	for path, body := range map[string]string{
		"/api/v1/runs": `{"agent_id":"demo","conversation_id":"c1","message":"hi",` + files + `}`,
		chatInvoke:     `{"agent_id":"demo","conversation_id":"c1","message":"hi",` + files + `}`,
	} {
		a := f.post(t, path, body)
		if a.status >= http.StatusBadRequest {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		turn := <-turns
		if len(turn.Files) != 2 || turn.Files[0] != (worker.File{Handle: s.FileID + "-for-" + turn.Envelope.RunID, DisplayName: "a.txt", MIMEType: "text/plain", Size: 5}) || turn.Files[1].DisplayName != "b.txt" {
			t.Errorf("%s: the run has %+v", path, turn.Files)
		}
		f.ended(t, turn.Envelope.RunID)
	}
}

func TestFilesThatAreNotTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	two, formType := form(t, []byte("x"), [2]string{"file", "a"}, [2]string{"file", "b"})
	other, otherType := form(t, []byte("x"), [2]string{"other", "a"})
	none, noneType := form(t, nil)
	one, oneType := form(t, []byte("x"), [2]string{"file", "a"})
	for name, c := range map[string]struct {
		path, mime, body string
		status           int
		code             fault.Code
		detail           string
	}{
		"no agent":           {"/api/v1/files?conversation_id=c1", "text/plain", "x", http.StatusBadRequest, fault.InvalidRequest, "agent_id: "},
		"no conversation":    {"/api/v1/files?agent_id=demo", "text/plain", "x", http.StatusBadRequest, fault.InvalidRequest, "conversation_id: "},
		"a parameter twice":  {saveInC1 + "&agent_id=demo", "text/plain", "x", http.StatusBadRequest, fault.InvalidRequest, "agent_id: "},
		"a long name":        {saveInC1 + "&name=" + strings.Repeat("n", 256), "text/plain", "x", http.StatusBadRequest, fault.InvalidRequest, "name: "},
		"no type":            {saveInC1, "words", "x", http.StatusBadRequest, fault.InvalidRequest, "Content-Type: "},
		"two files":          {saveInC1, formType, two, http.StatusBadRequest, fault.InvalidRequest, "file: "},
		"another part":       {saveInC1, otherType, other, http.StatusBadRequest, fault.InvalidRequest, "file: "},
		"no part":            {saveInC1, noneType, none, http.StatusBadRequest, fault.InvalidRequest, "file: "},
		"a cut form":         {saveInC1, oneType, one[:len(one)-70], http.StatusBadRequest, fault.InvalidRequest, "body: "},
		"a form that is not": {saveInC1, "multipart/form-data", "x", http.StatusBadRequest, fault.InvalidRequest, "Content-Type: "},
		"an unknown agent":   {"/api/v1/files?agent_id=none&conversation_id=c1", "text/plain", "x", http.StatusForbidden, fault.AccessDenied, ""},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, f.send(t, f.storing(t, c.path, c.mime, []byte(c.body))), c.status, c.code, c.detail)
		})
	}
	for name, body := range map[string]string{
		"both":  `{"file_id":"obj_x","name":"a","mime_type":"text/plain","data":"eA=="}`,
		"no id": `{"file_id":"a/b"}`,
		"empty": `{}`,
	} {
		a := f.post(t, "/api/v1/runs", `{"agent_id":"demo","conversation_id":"c1","message":"hi","files":[`+body+`]}`)
		if a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// More than a file may have is refused, whether the request says its length or not,
// once that is known. The rest of it never comes.
func TestALargeFileIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for length, sent := range map[int64]int64{runs.MaxFileBytes + 1<<20: 1, -1: runs.MaxFileBytes + 1} {
		r := f.request(t, http.MethodPost, saveInC1, "")
		r.Header.Set("Content-Type", "application/octet-stream")
		rest, done := io.Pipe()
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, sent), rest)), length
		a := f.send(t, r)
		_ = done.Close()
		refused(t, a, http.StatusRequestEntityTooLarge, fault.RequestTooLarge, "")
	}
}

// A file that breaks off never ends cleanly.
func TestAFileThatBreaksOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	content := bytes.Repeat([]byte("0123456789\n"), 1000)
	s := f.save(t, f.storing(t, saveInC1, "text/plain", content), content)
	f.stack.Files.Break()
	res, err := f.client.Do(f.request(t, http.MethodGet, "/api/v1/files/"+s.FileID, ""))
	if err != nil {
		return // reset before the header was read
	}
	defer func() { _ = res.Body.Close() }()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%d bytes ended cleanly", len(body))
	}
}

// A body that is cut off stores nothing, and says so where anybody listens.
func TestATruncatedFileIsNotStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	r := f.request(t, http.MethodPost, saveInC1, "")
	r.Header.Set("Content-Type", "text/plain")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("half")), 8
	if res, err := f.client.Do(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("it was answered with %d", res.StatusCode)
	}
	if n := f.stack.Files.Stored(); n != 0 {
		t.Errorf("%d files are stored", n)
	}
	var list json.RawMessage
	f.get(t, "/api/v1/agents").json(t, &list) // it goes on
}
