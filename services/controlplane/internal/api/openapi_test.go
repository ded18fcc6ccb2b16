package api_test

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cofferdam.dev/services/controlplane/internal/api"
)

const documentURL = "https://cofferdam.test/openapi.json"

// operation is one of the document.
type operation struct {
	method  string
	path    *regexp.Regexp
	pointer string // of the operation in the document
	request bool
	// anything is taken as a body, that is.
	anything bool
	answers  map[string]map[string]json.RawMessage // status -> content type -> media
}

// contract is the document that is served, as far as answers can be checked
// against it.
type contract struct {
	operations []operation
	schemas    *jsonschema.Compiler
	mu         sync.Mutex // of schemas
}

var document = sync.OnceValues(func() (*contract, error) {
	w := &memory{header: http.Header{}}
	api.New(api.Config{}).Public().ServeHTTP(w, must(http.NewRequest(http.MethodGet, "/api/v1/openapi.json", nil)))
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.body.Bytes()))
	if err != nil {
		return nil, err
	}
	c := &contract{schemas: jsonschema.NewCompiler()}
	c.schemas.AssertFormat()
	if err := c.schemas.AddResource(documentURL, whole); err != nil {
		return nil, err
	}
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody *struct {
				Content map[string]json.RawMessage `json:"content"`
			} `json:"requestBody"`
			Responses map[string]struct {
				Content map[string]json.RawMessage `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(w.body.Bytes(), &doc); err != nil {
		return nil, err
	}
	parameter := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for path, operations := range doc.Paths {
		for method, op := range operations {
			o := operation{
				method: strings.ToUpper(method), request: op.RequestBody != nil,
				path:    regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), "[^/:]+") + "$"),
				pointer: "#/paths/" + strings.ReplaceAll(strings.ReplaceAll(path, "~", "~0"), "/", "~1") + "/" + method,
				answers: map[string]map[string]json.RawMessage{},
			}
			if op.RequestBody != nil {
				_, o.anything = op.RequestBody.Content["*/*"]
			}
			for status, answer := range op.Responses {
				o.answers[status] = answer.Content
			}
			c.operations = append(c.operations, o)
		}
	}
	return c, nil
})

// memory is a response writer.
type memory struct {
	header http.Header
	body   bytes.Buffer
}

func (m *memory) Header() http.Header         { return m.header }
func (m *memory) Write(b []byte) (int, error) { return m.body.Write(b) }
func (m *memory) WriteHeader(int)             {}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keeps checks a request that was taken, and every answer, against the document. A
// route that it does not have is one that is not there.
func keeps(t *testing.T, r *http.Request, body []byte, a answer) {
	t.Helper()
	c, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.operations {
		if o.method != r.Method || !o.path.MatchString(r.URL.Path) {
			continue
		}
		if sent, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); o.request && a.status < http.StatusMultipleChoices && len(body) > 0 && !o.anything {
			if sent != "application/json" {
				t.Errorf("%s %s took %s, which is not described", r.Method, r.URL.Path, sent)
			}
			c.valid(t, r, o.pointer+"/requestBody/content/application~1json/schema", body)
		}
		media, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			return
		}
		status := strconv.Itoa(a.status)
		content, named := o.answers[status]
		switch {
		case !named && a.status < http.StatusBadRequest:
			t.Errorf("%s %s answers with a status that is not described: %d", r.Method, r.URL.Path, a.status)
		case !named:
			c.valid(t, r, "#/components/schemas/Error", a.body)
		case content[media] == nil && content["*/*"] == nil:
			t.Errorf("%s %s answers with %s, which is not described", r.Method, r.URL.Path, media)
		case content["application/json"] != nil && media == "application/json":
			c.valid(t, r, o.pointer+"/responses/"+status+"/content/application~1json/schema", a.body)
		}
		return
	}
	if a.status < http.StatusBadRequest {
		t.Errorf("%s %s is not described and answers with %d", r.Method, r.URL.Path, a.status)
	}
}

// compile is for tests that run at once, which the compiler does not bear.
func (c *contract) compile(pointer string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schemas.Compile(documentURL + pointer)
}

func (c *contract) valid(t *testing.T, r *http.Request, pointer string, body []byte) {
	t.Helper()
	schema, err := c.compile(pointer)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		t.Errorf("%s %s: %s is not as described: %v", r.Method, r.URL.Path, body, err)
	}
}

// The document is served to whoever asks, and finds what is not as it says.
func TestTheDocument(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, base := range []string{f.public, f.operators} {
		r := f.requestTo(t, base, "user-1", http.MethodGet, "/api/v1/openapi.json", "")
		r.Header.Del("Authorization")
		if a := f.send(t, r); a.status != http.StatusOK || !json.Valid(a.body) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	c := must(document())
	for pointer, body := range map[string]string{
		"#/components/schemas/Started": `{"run_id":"r","binding_id":"b"}`,
		"#/components/schemas/Run":     `{"run_id":"r","surprise":1}`,
		"#/components/schemas/Error":   `{"error":{"code":"internal"}}`,
	} {
		if err := must(c.compile(pointer)).Validate(must(jsonschema.UnmarshalJSON(strings.NewReader(body)))); err == nil {
			t.Errorf("%s takes %s", pointer, body)
		}
	}
}
