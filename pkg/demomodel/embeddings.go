package demomodel

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"net/http"
	"strings"
	"unicode"
)

const (
	// Dimension is how many numbers an embedding has.
	Dimension = 256
	// maxInputs bounds how many texts one request may have.
	maxInputs = 128
	// gram is how many characters of a word are looked at together: "colours" is
	// near to "colour" because they share most of their parts.
	gram = 3
)

type embeddingsRequest struct {
	Model  string          `json:"model"`
	Input  json.RawMessage `json:"input"`
	Format string          `json:"encoding_format"`
}

// texts are what is to be embedded; nil where that cannot be told.
func (r embeddingsRequest) texts() []string {
	var one string
	if json.Unmarshal(r.Input, &one) == nil {
		return []string{one}
	}
	var several []string
	if json.Unmarshal(r.Input, &several) != nil {
		return nil
	}
	return several
}

type embedding struct {
	Object    string    `json:"object"`
	Index     int       `json:"index"`
	Embedding []float32 `json:"embedding"`
}

type embeddingsAnswer struct {
	Object string          `json:"object"`
	Data   []embedding     `json:"data"`
	Model  string          `json:"model"`
	Usage  embeddingsUsage `json:"usage"`
}

type embeddingsUsage struct {
	Prompt int `json:"prompt_tokens"`
	Total  int `json:"total_tokens"`
}

func serveEmbeddings(w http.ResponseWriter, raw []byte) {
	var r embeddingsRequest
	if json.Unmarshal(raw, &r) != nil || r.Model == "" {
		refuse(w, chat{}, http.StatusBadRequest, "Send a JSON object with a model and an input.")
		return
	}
	texts := r.texts()
	if len(texts) == 0 || len(texts) > maxInputs || r.Format != "" && r.Format != "float" {
		refuse(w, chat{}, http.StatusBadRequest, "input must be a text or up to 128 of them, and encoding_format float.")
		return
	}
	a := embeddingsAnswer{Object: "list", Model: r.Model, Data: make([]embedding, 0, len(texts))}
	for i, text := range texts {
		a.Data = append(a.Data, embedding{Object: "embedding", Index: i, Embedding: embed(text)})
		a.Usage.Prompt += len(strings.Fields(text))
	}
	a.Usage.Total = a.Usage.Prompt
	writeJSON(w, http.StatusOK, a)
}

// embed hashes a text's words, and the parts of them, into one list of length 1.
// A text without words is as far from all others as it can be: in a place that no
// word has.
func embed(text string) []float32 {
	counts := make([]float64, Dimension)
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		counts[place(word)]++
		padded := []rune("^" + word + "$")
		for i := 0; i+gram <= len(padded); i++ {
			counts[place(string(padded[i:i+gram]))] += 0.5
		}
	}
	length := 0.0
	for _, n := range counts {
		length += n * n
	}
	if length == 0 {
		counts[0], length = 1, 1
	}
	out := make([]float32, Dimension)
	for i, n := range counts {
		out[i] = float32(n / math.Sqrt(length))
	}
	return out
}

// place is where a word counts: never at 0.
func place(word string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(word)) // never fails
	return 1 + int(h.Sum32()%(Dimension-1))
}
