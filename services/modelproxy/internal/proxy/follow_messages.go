package proxy

import (
	"bytes"
	"encoding/json"
)

// messagesFollower follows Anthropic Messages: message_start, a message_delta
// with the stop_reason, message_stop.
type messagesFollower struct {
	begun, stopped bool
	used           usage
}

type messagesUsage struct {
	In      *int64 `json:"input_tokens"`
	Created *int64 `json:"cache_creation_input_tokens"`
	Read    *int64 `json:"cache_read_input_tokens"`
	Out     *int64 `json:"output_tokens"`
}

type messagesDoc struct {
	mayFail

	Type       string          `json:"type"`
	StopReason string          `json:"stop_reason"`
	Content    json.RawMessage `json:"content"`
	Usage      messagesUsage   `json:"usage"`
}

type messagesView struct {
	mayFail

	Type    string      `json:"type"`
	Message messagesDoc `json:"message"`
	Delta   struct {
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
	Usage messagesUsage `json:"usage"`
}

// count takes what a provider says so far: the later word counts. What came out
// of a cache was input too.
func (f *messagesFollower) count(u messagesUsage) {
	f.used.set(sum(u.In, u.Created, u.Read), u.Out)
}

func (f *messagesFollower) event(data []byte) (step, error) {
	var v messagesView
	if err := look(data, &v); err != nil {
		return step{}, err
	}
	if !eventName.MatchString(v.Type) || f.begun == (v.Type == "message_start") && v.Type != "ping" && v.Type != "error" {
		return step{}, failed(errMalformed)
	}
	out := step{name: v.Type, data: data}
	switch v.Type {
	case "error":
		return step{}, failed(errInAnswer)
	case "message_start":
		f.begun = true
		f.count(v.Message.Usage)
	case "message_delta":
		f.stopped = f.stopped || v.Delta.StopReason != ""
		f.count(v.Usage)
	case "message_stop":
		out.last = true
		if !f.stopped {
			return step{}, failed(errNoFinish)
		}
	}
	return out, nil
}

func (f *messagesFollower) whole(data []byte) ([]byte, error) {
	var d messagesDoc
	if err := look(data, &d); err != nil {
		return nil, err
	}
	f.count(d.Usage)
	switch {
	case d.Type == "error":
		return nil, failed(errInAnswer)
	case d.Type != "message", !isList(bytes.TrimSpace(d.Content)):
		return nil, failed(errMalformed)
	case d.StopReason == "":
		return nil, failed(errNoFinish)
	default:
		return data, nil
	}
}

func (f *messagesFollower) mayEnd() bool { return false }
func (f *messagesFollower) usage() usage { return f.used }

// countFollower reads how many tokens a request has.
type countFollower struct{}

func (*countFollower) event([]byte) (step, error) { return step{}, failed(errMalformed) }

func (*countFollower) whole(data []byte) ([]byte, error) {
	var v struct {
		mayFail

		InputTokens *int64 `json:"input_tokens"`
	}
	if err := look(data, &v); err != nil {
		return nil, err
	}
	if v.InputTokens == nil || *v.InputTokens < 0 || *v.InputTokens > maxTokens {
		return nil, failed(errMalformed)
	}
	return encode(map[string]int64{"input_tokens": *v.InputTokens})
}

func (*countFollower) mayEnd() bool { return false }
func (*countFollower) usage() usage { return usage{} }
