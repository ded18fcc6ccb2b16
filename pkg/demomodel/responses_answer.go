package demomodel

import (
	"net/http"
	"strconv"
	"strings"
)

// responsesBody is an answer, or what there is of it.
type responsesBody struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	CreatedAt         int64             `json:"created_at"`
	Status            string            `json:"status"`
	Error             *struct{}         `json:"error"`
	IncompleteDetails *struct{}         `json:"incomplete_details"`
	Model             string            `json:"model"`
	Output            []responsesOutput `json:"output"`
	ParallelToolCalls bool              `json:"parallel_tool_calls"`
	ToolChoice        string            `json:"tool_choice"`
	Tools             []struct{}        `json:"tools"`
	Usage             *responsesUsage   `json:"usage"`
}

type responsesUsage struct {
	InputTokens  int `json:"input_tokens"`
	InputDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens  int `json:"output_tokens"`
	OutputDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int `json:"total_tokens"`
}

// responsesOutput is a message, a thought or a call.
type responsesOutput struct {
	Type      string           `json:"type"`
	ID        string           `json:"id"`
	Status    string           `json:"status,omitempty"`
	Role      string           `json:"role,omitempty"`
	Content   *[]responsesPart `json:"content,omitempty"`
	Summary   *[]responsesPart `json:"summary,omitempty"`
	CallID    string           `json:"call_id,omitempty"`
	Namespace string           `json:"namespace,omitempty"`
	Name      string           `json:"name,omitempty"`
	Arguments *string          `json:"arguments,omitempty"`
}

type responsesPart struct {
	Type        string      `json:"type"`
	Text        string      `json:"text"`
	Annotations *[]struct{} `json:"annotations,omitempty"`
}

func outputText(text string) responsesPart {
	return responsesPart{Type: "output_text", Text: text, Annotations: &[]struct{}{}}
}

// responsesEvent is one event of a stream; which fields count depends on its
// type.
type responsesEvent struct {
	Type         string           `json:"type"`
	Sequence     int              `json:"sequence_number"`
	Response     *responsesBody   `json:"response,omitempty"`
	ItemID       string           `json:"item_id,omitempty"`
	OutputIndex  *int             `json:"output_index,omitempty"`
	ContentIndex *int             `json:"content_index,omitempty"`
	SummaryIndex *int             `json:"summary_index,omitempty"`
	Item         *responsesOutput `json:"item,omitempty"`
	Part         *responsesPart   `json:"part,omitempty"`
	Delta        *string          `json:"delta,omitempty"`
	Text         *string          `json:"text,omitempty"`
	Arguments    *string          `json:"arguments,omitempty"`
}

// responsesAnswer builds an answer item by item. With sse it tells each step as
// an event; otherwise it writes the whole at the end.
type responsesAnswer struct {
	req      *request
	w        http.ResponseWriter
	sse      *sse
	sequence int
	body     responsesBody
	open     *responsesOutput // a message or a thought that goes on
	text     strings.Builder  // of it
}

func (a *responsesAnswer) start(int) error {
	a.body.ParallelToolCalls, a.body.ToolChoice, a.body.Tools = true, "auto", []struct{}{}
	if a.sse != nil {
		a.sse.open()
	}
	for _, kind := range []string{"response.created", "response.in_progress"} {
		body := a.body
		body.Status = "in_progress"
		if err := a.event(responsesEvent{Type: kind, Response: &body}); err != nil {
			return err
		}
	}
	return nil
}

// event sends an event of a stream.
func (a *responsesAnswer) event(e responsesEvent) error {
	if a.sse == nil {
		return nil
	}
	e.Sequence = a.sequence
	a.sequence++
	return a.sse.named(e.Type, e)
}

// about sends an event about the item that goes on.
func (a *responsesAnswer) about(e responsesEvent) error {
	index, zero := len(a.body.Output), 0
	e.ItemID, e.OutputIndex = a.open.ID, &index
	if a.open.Type == "reasoning" {
		e.SummaryIndex = &zero
	} else {
		e.ContentIndex = &zero
	}
	return a.event(e)
}

func (a *responsesAnswer) say(piece string) error {
	if err := a.ensure("message"); err != nil {
		return err
	}
	a.text.WriteString(piece)
	return a.about(responsesEvent{Type: "response.output_text.delta", Delta: &piece})
}

func (a *responsesAnswer) think(piece string) error {
	if err := a.ensure("reasoning"); err != nil {
		return err
	}
	a.text.WriteString(piece)
	return a.about(responsesEvent{Type: "response.reasoning_summary_text.delta", Delta: &piece})
}

// ensure opens an item of a kind, unless it goes on already.
func (a *responsesAnswer) ensure(kind string) error {
	if a.open != nil && a.open.Type == kind {
		return nil
	}
	if err := a.close(); err != nil {
		return err
	}
	index, none := len(a.body.Output), []responsesPart{}
	a.open = &responsesOutput{Type: kind, ID: a.itemID("msg_"), Status: "in_progress", Role: "assistant", Content: &none}
	part, added := outputText(""), "response.content_part.added"
	if kind == "reasoning" {
		a.open = &responsesOutput{Type: kind, ID: a.itemID("rs_"), Summary: &none}
		part, added = responsesPart{Type: "summary_text"}, "response.reasoning_summary_part.added"
	}
	item := *a.open
	if err := a.event(responsesEvent{Type: "response.output_item.added", OutputIndex: &index, Item: &item}); err != nil {
		return err
	}
	return a.about(responsesEvent{Type: added, Part: &part})
}

func (a *responsesAnswer) itemID(prefix string) string {
	return prefix + a.req.id("item "+strconv.Itoa(len(a.body.Output)))
}

// close ends the item that goes on, if there is one.
func (a *responsesAnswer) close() error {
	if a.open == nil {
		return nil
	}
	text := a.text.String()
	part, done := outputText(text), [2]string{"response.output_text.done", "response.content_part.done"}
	if a.open.Type == "reasoning" {
		part, done = responsesPart{Type: "summary_text", Text: text}, [2]string{"response.reasoning_summary_text.done", "response.reasoning_summary_part.done"}
	}
	if err := a.about(responsesEvent{Type: done[0], Text: &text}); err != nil {
		return err
	}
	if err := a.about(responsesEvent{Type: done[1], Part: &part}); err != nil {
		return err
	}
	item := *a.open
	if item.Type == "reasoning" {
		item.Summary = &[]responsesPart{part}
	} else {
		item.Content, item.Status = &[]responsesPart{part}, "completed"
	}
	a.open = nil
	a.text.Reset()
	return a.add(item)
}

// add appends an item that is done.
func (a *responsesAnswer) add(item responsesOutput) error {
	index := len(a.body.Output)
	a.body.Output = append(a.body.Output, item)
	return a.event(responsesEvent{Type: "response.output_item.done", OutputIndex: &index, Item: &item})
}

func (a *responsesAnswer) call(_ int, c toolCall) error {
	if err := a.close(); err != nil {
		return err
	}
	index, empty := len(a.body.Output), ""
	item := responsesOutput{
		Type: "function_call", ID: a.itemID("fc_"), Status: "in_progress", CallID: c.id, Namespace: c.namespace, Name: c.name, Arguments: &empty,
	}
	begun := item
	if err := a.event(responsesEvent{Type: "response.output_item.added", OutputIndex: &index, Item: &begun}); err != nil {
		return err
	}
	for piece := range words(c.args) {
		e := responsesEvent{Type: "response.function_call_arguments.delta", ItemID: item.ID, OutputIndex: &index, Delta: &piece}
		if err := a.event(e); err != nil {
			return err
		}
	}
	e := responsesEvent{Type: "response.function_call_arguments.done", ItemID: item.ID, OutputIndex: &index, Arguments: &c.args}
	if err := a.event(e); err != nil {
		return err
	}
	item.Status, item.Arguments = "completed", &c.args
	return a.add(item)
}

func (a *responsesAnswer) finish(_ bool, u usage) error {
	if err := a.close(); err != nil {
		return err
	}
	a.body.Status = "completed"
	a.body.Usage = &responsesUsage{InputTokens: u.in, OutputTokens: u.out, TotalTokens: u.in + u.out}
	if a.sse != nil {
		return a.event(responsesEvent{Type: "response.completed", Response: &a.body})
	}
	writeJSON(a.w, http.StatusOK, a.body)
	return nil
}

func (a *responsesAnswer) breakOff() {
	if a.sse == nil {
		breakBody(a.w, a.body.ID)
	}
}
