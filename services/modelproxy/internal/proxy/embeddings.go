package proxy

import (
	"encoding/json"
	"slices"

	"cofferdam.dev/pkg/fault"
)

const (
	// maxInputs is how many texts one request for embeddings may have.
	maxInputs = 128
	// maxDimension bounds one embedding.
	maxDimension = 4096
)

// embeddingsRules are those of OpenAI Embeddings. Texts alone go out and lists of
// numbers alone come back, so that a caller finds in them what it can check.
func embeddingsRules() rules {
	return rules{
		passed: set("dimensions", "encoding_format", "input", "model", "user"),
		own:    func(object) bool { return false },
		check:  (*request).checkEmbeddings,
		shape:  shape{leaves: map[string]leaf{"input": leafText}},
	}
}

func (r *request) checkEmbeddings(admission) error {
	var one string
	var several []string
	switch raw := r.fields["input"]; {
	case json.Unmarshal(raw, &one) == nil && one != "":
		several = []string{one}
	case json.Unmarshal(raw, &several) != nil, len(several) == 0, len(several) > maxInputs:
		return invalid("input: a text, or a list of 1 to 128 texts")
	}
	if slices.Contains(several, "") {
		return invalid("input: texts that are not empty")
	}
	if r.stream {
		return invalid("stream: not for embeddings")
	}
	if raw, ok := r.fields["encoding_format"]; ok && string(raw) != `"float"` {
		return invalid("encoding_format: float")
	}
	return nil
}

// embeddingsFollower follows OpenAI Embeddings, which is never streamed.
type embeddingsFollower struct{ used usage }

type embeddingsView struct {
	mayFail

	Data []struct {
		Index     *int      `json:"index"`
		Embedding []float64 `json:"embedding"`
	} `json:"data"`
	Usage *struct {
		In *int64 `json:"prompt_tokens"`
	} `json:"usage"`
}

// whole takes an answer with one list of numbers for each index, all of one
// length.
func (f *embeddingsFollower) whole(data []byte) ([]byte, error) {
	var v embeddingsView
	if err := look(data, &v); err != nil {
		return nil, err
	}
	seen := make(map[int]bool, len(v.Data))
	for _, d := range v.Data {
		n := len(d.Embedding)
		if d.Index == nil || *d.Index < 0 || *d.Index >= len(v.Data) || seen[*d.Index] || n == 0 || n > maxDimension || n != len(v.Data[0].Embedding) {
			return nil, failed(errMalformed)
		}
		seen[*d.Index] = true
	}
	if len(seen) == 0 {
		return nil, failed(errMalformed)
	}
	if v.Usage != nil {
		f.used.set(v.Usage.In, nil)
	}
	return data, nil
}

func (f *embeddingsFollower) event([]byte) (step, error) {
	return step{}, fault.New(fault.Internal, "proxy.embeddings")
}

func (f *embeddingsFollower) mayEnd() bool { return false }
func (f *embeddingsFollower) usage() usage { return f.used }
