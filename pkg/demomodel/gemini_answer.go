package demomodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// geminiBody is an answer, or a piece of a streamed one.
type geminiBody struct {
	Candidates   []geminiCandidate `json:"candidates"`
	Usage        *geminiUsage      `json:"usageMetadata,omitempty"`
	ModelVersion string            `json:"modelVersion"`
	ResponseID   string            `json:"responseId"`
}

type geminiCandidate struct {
	Content      geminiContent `json:"content"`
	FinishReason string        `json:"finishReason,omitempty"`
	Index        int           `json:"index"`
}

type geminiUsage struct {
	Prompt     int `json:"promptTokenCount"`
	Candidates int `json:"candidatesTokenCount"`
	Total      int `json:"totalTokenCount"`
}

// geminiAnswer sends part by part with sse; otherwise it gathers the parts and
// writes the whole at the end.
type geminiAnswer struct {
	w         http.ResponseWriter
	sse       *sse
	model, id string
	parts     []geminiPart
	text      strings.Builder // of the last part, while it is one
	thought   bool            // what kind of text that is
}

func (a *geminiAnswer) body(finish string, parts ...geminiPart) geminiBody {
	content := geminiContent{Role: "model", Parts: append([]geminiPart{}, parts...)}
	return geminiBody{
		Candidates:   []geminiCandidate{{Content: content, FinishReason: finish}},
		ModelVersion: a.model,
		ResponseID:   a.id,
	}
}

func (a *geminiAnswer) start(int) error {
	if a.sse != nil {
		a.sse.open()
	}
	return nil
}

// put adds a piece of text.
func (a *geminiAnswer) put(piece string, thought bool) error {
	if a.sse != nil {
		return a.sse.data(a.body("", geminiPart{Text: &piece, Thought: thought}))
	}
	if thought != a.thought {
		a.flush()
	}
	a.thought = thought
	a.text.WriteString(piece)
	return nil
}

// flush ends the text that was gathered.
func (a *geminiAnswer) flush() {
	if a.text.Len() > 0 {
		text := a.text.String()
		a.parts = append(a.parts, geminiPart{Text: &text, Thought: a.thought})
		a.text.Reset()
	}
}

func (a *geminiAnswer) say(piece string) error { return a.put(piece, false) }

func (a *geminiAnswer) think(piece string) error { return a.put(piece, true) }

func (a *geminiAnswer) call(_ int, c toolCall) error {
	p := geminiPart{FunctionCall: &geminiCall{ID: c.id, Name: c.name, Args: json.RawMessage(c.args)}}
	if a.sse != nil {
		return a.sse.data(a.body("", p))
	}
	a.flush()
	a.parts = append(a.parts, p)
	return nil
}

// finish sends the reason with an empty text, as the provider does.
func (a *geminiAnswer) finish(_ bool, u usage) error {
	count := &geminiUsage{Prompt: u.in, Candidates: u.out, Total: u.in + u.out}
	if a.sse == nil {
		a.flush()
		body := a.body("STOP", a.parts...)
		body.Usage = count
		writeJSON(a.w, http.StatusOK, body)
		return nil
	}
	empty := ""
	last := a.body("STOP", geminiPart{Text: &empty})
	last.Usage = count
	return a.sse.data(last)
}

func (a *geminiAnswer) breakOff() {
	if a.sse == nil {
		breakBody(a.w, a.id)
	}
}
