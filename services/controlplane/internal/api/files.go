package api

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

const (
	filesRoute = "/api/v1/files"
	// maxUploadBytes of a request that stores a file: the file, and what a form has
	// around it.
	maxUploadBytes = runs.MaxFileBytes + 64<<10
	octetStream    = "application/octet-stream"
)

// shown are the types that a file is served with. Every other file is only bytes: a
// browser must not run what somebody stored.
var shown = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "application/pdf": true,
	"text/plain": true, "text/csv": true, "application/json": true,
}

// bodyLimit of a request.
func bodyLimit(r *http.Request) int64 {
	if r.Method == http.MethodPost && r.URL.Path == filesRoute {
		return maxUploadBytes
	}
	return MaxBodyBytes
}

// storedBody is what was stored.
type storedBody struct {
	FileID string `json:"file_id"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// saveFile serves POST /api/v1/files: the body is the file, or a form with it.
func (a *API) saveFile(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	req, err := saveRequest(r)
	if err != nil {
		return err
	}
	if err := a.mayAsk(r, caller, req.AgentID, req.ConversationID); err != nil {
		return err
	}
	content, err := newContent(w, r, &req.FileHead)
	if err != nil {
		return err
	}
	req.Content = content
	f, err := a.cfg.Runs.SaveFile(r.Context(), caller, req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, storedBody{FileID: f.ID, SHA256: hex.EncodeToString(f.SHA256[:]), Size: f.Size})
}

// saveRequest is what the query says of a file.
func saveRequest(r *http.Request) (req runs.SaveFile, err error) {
	for name, to := range map[string]*string{"agent_id": &req.AgentID, "conversation_id": &req.ConversationID, "name": &req.Name} {
		if *to, _, err = parameter(r, name); err != nil {
			return req, err
		}
	}
	if len(req.Name) > maxNameBytes {
		return req, fault.New(fault.InvalidRequest, "api.saveFile", fault.Detail("name: at most 255 bytes"))
	}
	if r.ContentLength > maxUploadBytes {
		return req, tooLarge()
	}
	return req, nil
}

func tooLarge() error {
	return fault.New(fault.RequestTooLarge, "api.saveFile", fault.Detail("body: a file of at most 64 MiB"))
}

// content is the one file of a request, read as it comes.
type content struct {
	io.Reader
	// form has the file, where the body is one.
	form *multipart.Reader
}

// newContent finds the file, and says what it is.
func newContent(w http.ResponseWriter, r *http.Request, head *runs.FileHead) (*content, error) {
	bad := func(detail string) (*content, error) {
		return nil, fault.New(fault.InvalidRequest, "api.saveFile", fault.Detail(detail))
	}
	r.Body = &patient{ReadCloser: r.Body, rc: http.NewResponseController(w), until: time.Now().Add(runs.SaveTimeout)}
	head.MaxBytes = runs.MaxFileBytes
	if r.ContentLength >= 0 {
		head.MaxBytes = min(head.MaxBytes, r.ContentLength)
	}
	c := &content{Reader: r.Body}
	declared := r.Header.Get("Content-Type")
	if t, _, err := mime.ParseMediaType(declared); err == nil && t == "multipart/form-data" {
		if c.form, err = r.MultipartReader(); err != nil {
			return bad("Content-Type: multipart/form-data with a boundary")
		}
		part, err := c.form.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return bad("file: required, the one part of the form")
		case err != nil:
			return nil, arrived(err)
		case part.FormName() != "file" || part.FileName() == "":
			return bad("file: the one part of the form, with a filename")
		}
		c.Reader, declared = part, part.Header.Get("Content-Type")
		if head.Name == "" {
			head.Name = part.FileName()
		}
	}
	if head.Name == "" {
		head.Name = "file"
	}
	head.MIMEType = octetStream
	if declared != "" {
		t, _, err := mime.ParseMediaType(declared)
		if err != nil || !mimePattern.MatchString(t) {
			return bad("Content-Type: the type of the file")
		}
		head.MIMEType = t
	}
	if len(head.Name) > maxNameBytes {
		return bad("filename: at most 255 bytes")
	}
	return c, nil
}

// Read implements io.Reader. It ends only where the body does as well.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if errors.Is(err, io.EOF) && c.form != nil {
		switch _, next := c.form.NextPart(); {
		case next == nil:
			return n, fault.New(fault.InvalidRequest, "api.saveFile", fault.Detail("file: the one part of the form"))
		case !errors.Is(next, io.EOF):
			return n, arrived(next)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = arrived(err)
	}
	return n, err
}

// arrived is the fault of a body that did not.
func arrived(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return tooLarge()
	}
	return fault.Wrap(err, fault.InvalidRequest, "api.saveFile", fault.Detail("body: did not arrive whole"))
}

// patient gives a large body time, as long as it comes.
type patient struct {
	io.ReadCloser

	rc    *http.ResponseController
	until time.Time
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	by := time.Now().Add(bodyTimeout)
	if p.until.Before(by) {
		by = p.until
	}
	_ = p.rc.SetReadDeadline(by) // a writer without deadlines is one of a test
	return p.ReadCloser.Read(b)
}

// getFile serves GET /api/v1/files/{file}: a file that was stored, one that a run
// wrote, or the whole result of a tool.
func (a *API) getFile(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	id := r.PathValue("file")
	if !event.ValidID(id) {
		return fault.New(fault.NotFound, "api.getFile")
	}
	f, err := a.cfg.Runs.File(r.Context(), caller, id)
	if err != nil {
		return err
	}
	return a.answerFile(w, r, f)
}

// answerFile sends a file, or the range of it that is asked for.
func (a *API) answerFile(w http.ResponseWriter, r *http.Request, f runs.StoredFile) error {
	tag := `"` + hex.EncodeToString(f.SHA256[:]) + `"`
	part, partial := whole(f.Size), false
	if match := r.Header.Get("If-Range"); match == "" || match == tag {
		part, partial = parseRange(r.Header.Values("Range"), f.Size)
	}
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	h.Set("Cache-Control", "private, no-store")
	status := http.StatusOK
	switch {
	case partial && part.length == 0:
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(f.Size, 10))
		boundWrite(w)
		fault.WriteHTTP(unsatisfiable{w}, fault.New(fault.InvalidRequest, "api.getFile", fault.Detail("Range: within the file")))
		return nil
	case partial:
		status = http.StatusPartialContent
		h.Set("Content-Range", part.of(f.Size))
	}
	begin := func() {
		h.Set("Content-Type", octetStream)
		if shown[f.MIMEType] {
			h.Set("Content-Type", f.MIMEType)
		}
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
		h.Set("ETag", tag)
		h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(f.SHA256[:])+":")
		h.Set("Content-Length", strconv.FormatInt(part.length, 10))
		w.WriteHeader(status)
	}
	if r.Method == http.MethodHead || part.length == 0 {
		begin()
		return nil
	}
	return a.sendFile(w, r, f, part, begin)
}

// sendFile begins the answer with the first part of the content: until then an
// error is an answer of its own, and afterwards it breaks this one off.
func (a *API) sendFile(w http.ResponseWriter, r *http.Request, f runs.StoredFile, part byteRange, begin func()) error {
	rc, began := http.NewResponseController(w), false
	err := a.cfg.Runs.ReadFile(r.Context(), f, part.offset, part.length, func(chunk []byte) error {
		_ = rc.SetWriteDeadline(time.Now().Add(a.cfg.WriteTimeout)) // a writer without deadlines is one of a test
		if !began {
			began = true
			begin()
		}
		_, err := w.Write(chunk)
		return err
	})
	if began {
		a.broken(r, err)
	}
	return err
}

// unsatisfiable answers 416 with an error that has no status of its own.
type unsatisfiable struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (u unsatisfiable) WriteHeader(int) {
	u.ResponseWriter.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
}
