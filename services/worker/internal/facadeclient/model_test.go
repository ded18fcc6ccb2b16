package facadeclient

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

// The transport adds the run's authority, and nothing that a library says about
// its machine leaves.
func TestModel(t *testing.T) {
	c := newClient(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", strings.NewReader(`{"model":"main"}`))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer from-the-library")
	req.Header.Set("X-Stainless-Os", "Linux")
	req.Header.Set("X-Api-Key", "from-the-library")
	req.Header.Set("X-Goog-Api-Key", "from-the-library")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Add("Anthropic-Beta", "a-1")
	req.Header.Add("Anthropic-Beta", "b-2")
	req.Header.Set("Content-Encoding", "identity")
	req.Header.Set("Cookie", "a=b")
	res, err := c.Model.HTTP.Do(req)
	must(t, err)
	body, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	if res.StatusCode != http.StatusOK || string(body) != `{"model":"main"}` {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if req.Header.Get("Authorization") != "Bearer from-the-library" {
		t.Error("the caller's request was changed")
	}
	if got := c.model.Values("Anthropic-Beta"); !slices.Equal(got, []string{"a-1", "b-2"}) || c.model.Get("Anthropic-Version") == "" || c.model.Get("Content-Encoding") == "" {
		t.Errorf("what the wires need did not leave: %v", c.model)
	}
	allowed := []string{"Anthropic-Version", "Anthropic-Beta", "Content-Encoding", "Accept", "Content-Type", "Authorization", "Cofferdam-Envelope", "Content-Length", "User-Agent", "Accept-Encoding"}
	for name := range c.model {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s: %s left the worker", name, c.model.Get(name))
		}
	}
	if c.Model.Alias != "main" {
		t.Errorf("alias %q", c.Model.Alias)
	}
}

func TestModelRefuses(t *testing.T) {
	c := newClient(t)
	body := &closing{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", body)
	must(t, err)
	res, err := c.facades(t, c.endpoint("brokers"), nil).Model.HTTP.Do(req) //nolint:bodyclose // there is none
	if res != nil || !fault.Is(err, fault.CapabilityMissing) {
		t.Errorf("without a capability: %v", err)
	}
	if !body.closed {
		t.Error("the body was left open")
	}

	c.stand.Replace(t)
	req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", strings.NewReader("{}"))
	must(t, err)
	res, err = c.Model.HTTP.Do(req)
	must(t, err)
	answer, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	if res.StatusCode != http.StatusConflict || !strings.Contains(string(answer), "stale_lease") || c.model != nil {
		t.Errorf("%d %s", res.StatusCode, answer)
	}
}

// A header as large as a message would leave beside the bounds of the body.
func TestModelHeadersAreBounded(t *testing.T) {
	c := newClient(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", strings.NewReader("{}"))
	must(t, err)
	req.Header.Set("Anthropic-Beta", strings.Repeat("x", 5<<10))
	_, err = c.Model.HTTP.Do(req) //nolint:bodyclose // there is none
	wantCode(t, err, fault.InvalidRequest)
	if c.model != nil {
		t.Error("it left the worker")
	}
}

// modelService is the model proxy's door with a model behind it, and the facade
// of a run that leads there.
func modelService(t *testing.T, h http.HandlerFunc) (harness.Model, *rpctest.Stand) {
	t.Helper()
	s := rpctest.NewStand(t)
	callers := identity.AllowList{identity.AnySandbox(s.Domain.TrustDomain())}
	srv := rpc.NewServer(s.RPC(), nil)
	for _, route := range []string{"POST /v1/{rest...}", "GET /v1/{rest...}", "POST /v1beta/models/{call}"} {
		srv.HandleHTTP(route, rpc.Policy{Callers: callers, Audience: capability.ModelProxy, Fence: rpc.RunFence}, h)
	}
	handler, err := srv.Handler()
	must(t, err)
	id := rpctest.ServiceID("modelproxy")
	ep := rpc.Endpoint{Address: s.Serve(t, rpctest.Service{Handler: handler, ID: id, Allow: callers}), ID: id}
	conn, err := New(Endpoints{ToolBroker: ep, ThreadState: ep, Memory: ep, FileBroker: ep, ModelProxy: ep, ModelAlias: "main"}, testAdapter, s.Source(t, rpctest.SandboxID()), s.Telemetry)
	must(t, err)
	t.Cleanup(conn.Close)
	claims := capability.Claims{
		Audience: capability.ModelProxy, Subject: rpctest.SandboxID(), ModelAlias: "main",
		BindingID: rpctest.BindingID, Epoch: rpctest.Epoch, Generation: rpctest.Generation, RunID: rpctest.RunID,
	}
	f, err := conn.Connect(s.Envelope(), []session.Token{{Audience: string(capability.ModelProxy), Token: s.Minter.Mint(claims)}}, nil)
	must(t, err)
	return f.Model, s
}

// The query belongs to the wire; a redirect leads the run's authority nowhere.
func TestModelQueryAndRedirects(t *testing.T) {
	var followed atomic.Int32
	m, _ := modelService(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/messages":
			_, _ = io.WriteString(w, r.URL.RawQuery)
		case "/v1/elsewhere":
			followed.Add(1)
		default:
			http.Redirect(w, r, "/v1/elsewhere", http.StatusTemporaryRedirect)
		}
	})
	send := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.RootURL+path, strings.NewReader("{}"))
		must(t, err)
		res, err := m.HTTP.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = res.Body.Close() }()
		data, err := io.ReadAll(res.Body)
		return string(data), err
	}
	if got, err := send("v1/messages?beta=true"); err != nil || got != "beta=true" {
		t.Errorf("query %q, %v", got, err)
	}
	if got, err := send("v1/responses"); !fault.Is(err, fault.ModelFailed) || followed.Load() != 0 {
		t.Errorf("a redirect gave %q, %v, followed %d times", got, err, followed.Load())
	}
}

const twoCalls = "x\n>>say now\n>>call fs.read {\"path\":\"a b\"}\n>>call demo.echo {}\n>>usage 12 34"

// The clients of the providers understand the demo model, through the facade of
// a run, with nothing but a base URL and the client.
func TestOpenAIClient(t *testing.T) {
	m, _ := modelService(t, demomodel.New().ServeHTTP)
	client := openai.NewClient(option.WithBaseURL(m.BaseURL), option.WithHTTPClient(m.HTTP), option.WithAPIKey("none"), option.WithMaxRetries(0))
	t.Run("chat", func(t *testing.T) {
		tool := func(name string) openai.ChatCompletionToolUnionParam {
			return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Parameters: shared.FunctionParameters{"type": "object"}})
		}
		stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
			Model: m.Alias, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(twoCalls)},
			Tools:         []openai.ChatCompletionToolUnionParam{tool("fs_read"), tool("gw_demo_echo")},
			StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		})
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			if !acc.AddChunk(stream.Current()) {
				t.Fatal("a chunk that does not fit")
			}
		}
		must(t, stream.Err())
		msg := acc.Choices[0].Message
		if msg.Content != "now" || len(msg.ToolCalls) != 2 || msg.ToolCalls[0].Function.Arguments != `{"path":"a b"}` || msg.ToolCalls[1].Function.Name != "gw_demo_echo" ||
			acc.Choices[0].FinishReason != "tool_calls" || acc.Usage.PromptTokens != 12 || acc.Usage.CompletionTokens != 34 {
			t.Errorf("%+v", acc.ChatCompletion)
		}
	})
	t.Run("responses", func(t *testing.T) {
		tool := func(name string) responses.ToolUnionParam {
			return responses.ToolParamOfFunction(name, map[string]any{"type": "object"}, false)
		}
		stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
			Model: m.Alias, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(twoCalls)},
			Tools: []responses.ToolUnionParam{tool("fs_read"), tool("gw_demo_echo")}, Store: openai.Bool(false),
		})
		var done responses.Response
		text := ""
		for stream.Next() {
			switch e := stream.Current().AsAny().(type) {
			case responses.ResponseTextDeltaEvent:
				text += e.Delta
			case responses.ResponseCompletedEvent:
				done = e.Response
			}
		}
		must(t, stream.Err())
		if text != "now" || done.OutputText() != "now" || len(done.Output) != 3 || done.Output[1].AsFunctionCall().Arguments != `{"path":"a b"}` ||
			done.Output[2].AsFunctionCall().Name != "gw_demo_echo" || done.Usage.InputTokens != 12 || done.Usage.OutputTokens != 34 {
			t.Errorf("%q, %s", text, done.RawJSON())
		}
	})
	t.Run("what is cut is an error", func(t *testing.T) {
		for _, script := range []string{">>say part\n>>reset", ">>error 500", ">>error 429"} {
			stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
				Model: m.Alias, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(script)},
			})
			for stream.Next() {
				_ = stream.Current()
			}
			if stream.Err() == nil {
				t.Errorf("%s: no error", script)
			}
		}
	})
}

func TestAnthropicClient(t *testing.T) {
	m, _ := modelService(t, demomodel.New().ServeHTTP)
	client := anthropic.NewClient(anthropicoption.WithBaseURL(m.RootURL), anthropicoption.WithHTTPClient(m.HTTP), anthropicoption.WithAPIKey("none"), anthropicoption.WithMaxRetries(0))
	tool := func(name string) anthropic.ToolUnionParam {
		return anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: name, InputSchema: anthropic.ToolInputSchemaParam{}}}
	}
	params := anthropic.MessageNewParams{
		Model: anthropic.Model(m.Alias), MaxTokens: 64, Tools: []anthropic.ToolUnionParam{tool("fs_read"), tool("mcp__gw__demo_echo")},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(">>think hm\n" + twoCalls))},
	}
	stream := client.Messages.NewStreaming(t.Context(), params)
	var got anthropic.Message
	for stream.Next() {
		must(t, got.Accumulate(stream.Current()))
	}
	must(t, stream.Err())
	whole, err := client.Messages.New(t.Context(), params)
	must(t, err)
	for _, a := range []anthropic.Message{got, *whole} {
		if len(a.Content) != 4 || a.Content[0].Thinking != "hm" || a.Content[1].Text != "now" || string(a.Content[2].Input) != `{"path":"a b"}` ||
			a.Content[3].Name != "mcp__gw__demo_echo" || a.StopReason != anthropic.StopReasonToolUse || a.Usage.InputTokens != 12 || a.Usage.OutputTokens != 34 {
			t.Errorf("%+v", a)
		}
	}
	count, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: params.Model, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("one two three"))},
	})
	if err != nil || count.InputTokens != 3 {
		t.Errorf("%+v, %v", count, err)
	}
	params.Messages = []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(">>say part\n>>reset"))}
	cut := client.Messages.NewStreaming(t.Context(), params)
	for cut.Next() {
		_ = cut.Current()
	}
	if cut.Err() == nil {
		t.Error("a stream that is cut ends without an error")
	}
}

type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }
