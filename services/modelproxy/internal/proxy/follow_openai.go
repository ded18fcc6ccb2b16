package proxy

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"

	"cofferdam.dev/pkg/fault"
)

// chatFollower follows OpenAI Chat Completions: every choice has its
// finish_reason, and then comes "[DONE]".
type chatFollower struct {
	finishes

	used usage
}

type chatView struct {
	mayFail

	Choices []chatChoice `json:"choices"`
	Usage   *struct {
		In  *int64 `json:"prompt_tokens"`
		Out *int64 `json:"completion_tokens"`
	} `json:"usage"`
}

type chatChoice struct {
	Index        int    `json:"index"`
	FinishReason string `json:"finish_reason"`
}

func (c chatChoice) unfinished() bool { return c.FinishReason == "" }

func (f *chatFollower) read(data []byte) (chatView, error) {
	var v chatView
	if err := look(data, &v); err != nil {
		return v, err
	}
	for _, c := range v.Choices {
		if err := f.take(c.Index, c.FinishReason != ""); err != nil {
			return v, err
		}
	}
	if v.Usage != nil {
		f.used.set(v.Usage.In, v.Usage.Out)
	}
	return v, nil
}

func (f *chatFollower) event(data []byte) (step, error) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		if !f.all() {
			return step{}, failed(errNoFinish)
		}
		return step{data: data, last: true}, nil
	}
	_, err := f.read(data)
	return step{data: data}, err
}

func (f *chatFollower) whole(data []byte) ([]byte, error) {
	v, err := f.read(data)
	switch {
	case err != nil:
		return nil, err
	case len(v.Choices) == 0:
		return nil, failed(errMalformed)
	case slices.ContainsFunc(v.Choices, chatChoice.unfinished):
		return nil, failed(errNoFinish)
	default:
		return data, nil
	}
}

func (f *chatFollower) mayEnd() bool { return false }
func (f *chatFollower) usage() usage { return f.used }

// responsesFollower follows OpenAI Responses, up to response.completed,
// response.incomplete or response.failed.
type responsesFollower struct{ used usage }

type responsesView struct {
	mayFail

	Type     string       `json:"type"`
	Sequence int64        `json:"sequence_number"`
	Response responsesDoc `json:"response"`
}

type responsesDoc struct {
	mayFail

	ID     string          `json:"id"`
	Status string          `json:"status"`
	Output json.RawMessage `json:"output"`
	Usage  *struct {
		In  *int64 `json:"input_tokens"`
		Out *int64 `json:"output_tokens"`
	} `json:"usage"`
}

func (f *responsesFollower) count(d responsesDoc) {
	if d.Usage != nil {
		f.used.set(d.Usage.In, d.Usage.Out)
	}
}

func (f *responsesFollower) event(data []byte) (step, error) {
	var v responsesView
	if err := look(data, &v); err != nil {
		return step{}, err
	}
	if v.Type == "error" {
		return step{}, failed(errInAnswer)
	}
	if !eventName.MatchString(v.Type) {
		return step{}, failed(errMalformed)
	}
	f.count(v.Response)
	out := step{name: v.Type, data: data}
	switch v.Type {
	case "response.completed", "response.incomplete":
		out.last = true
		if v.Response.Status != "" && "response."+v.Response.Status != v.Type {
			return step{}, failed(errNoFinish)
		}
	case "response.failed":
		out.last, out.failed = true, true
		var err error
		out.data, err = failedResponse(v)
		return out, err
	}
	return out, nil
}

// answerID is what the id of an answer may look like.
var answerID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// failureCodes are the codes of a failed response that a client acts on, such as
// by compacting what it sent.
var failureCodes = set("context_length_exceeded", "rate_limit_exceeded", "server_error", "invalid_prompt", "insufficient_quota")

// failedResponse tells a failure without the provider's words.
func failedResponse(v responsesView) ([]byte, error) {
	var told struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(v.Response.Error, &told) != nil || !failureCodes[told.Code] {
		told.Code = "server_error"
	}
	if !answerID.MatchString(v.Response.ID) {
		v.Response.ID = "resp_failed"
	}
	return encode(map[string]any{
		"type": "response.failed", "sequence_number": max(v.Sequence, 0),
		"response": map[string]any{
			"id": v.Response.ID, "object": "response", "status": "failed", "output": []any{},
			"error": map[string]any{"code": told.Code, "message": fault.ModelFailed.Message()},
		},
	})
}

func (f *responsesFollower) whole(data []byte) ([]byte, error) {
	var d responsesDoc
	if err := look(data, &d); err != nil {
		return nil, err
	}
	f.count(d)
	switch {
	case d.Status == "failed":
		return nil, failed(errInAnswer)
	case d.Status != "completed" && d.Status != "incomplete":
		return nil, failed(errNoFinish)
	case !isList(bytes.TrimSpace(d.Output)):
		return nil, failed(errMalformed)
	default:
		return data, nil
	}
}

func (f *responsesFollower) mayEnd() bool { return false }
func (f *responsesFollower) usage() usage { return f.used }
