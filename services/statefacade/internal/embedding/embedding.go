// Package embedding asks the model proxy for embeddings, on the wire of OpenAI
// Embeddings. The state facade asks as itself: what it sends are texts that it
// keeps, and the alias is one that the operator gave this wire (ADR 0015).
//
// No text, and nothing of an answer, is in an error or a log.
package embedding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/statefacade/internal/memory/vector"
)

const (
	path = "/v1/embeddings"
	// faultHeader carries the code of a failure, as the model proxy has it.
	faultHeader = "Cofferdam-Fault"
	// atOnce bounds the requests that go on at once.
	atOnce = 8
	// numberBytes is what one number of an answer takes at most, and overhead what
	// an answer has besides.
	numberBytes, overhead = 32, 64 << 10
)

// Client asks one model proxy for the embeddings of one alias. It is safe for
// concurrent use.
type Client struct {
	http  *http.Client
	url   string
	space vector.Space
	slots chan struct{}
}

// New makes a client for the model proxy at base. The alias and the length of its
// vectors make the space: another model behind an alias wants another name, or
// what was stored before is compared with it.
func New(client *http.Client, base string, space vector.Space) *Client {
	return &Client{http: client, url: base + path, space: space, slots: make(chan struct{}, atOnce)}
}

// Space implements memory.Embedder.
func (c *Client) Space() vector.Space { return c.space }

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

type request struct {
	Model  string   `json:"model"`
	Input  []string `json:"input"`
	Format string   `json:"encoding_format"`
}

type answer struct {
	Data []struct {
		Index     *int      `json:"index"`
		Embedding []float64 `json:"embedding"`
	} `json:"data"`
}

// Embed implements memory.Embedder: one vector for each text, in their order.
// Faults: model_unavailable, rate_limited, capacity and deadline_exceeded, after
// which the same texts may be asked for again; model_failed, request_too_large
// and invalid_request where these very texts, or the configuration, are at fault.
func (c *Client) Embed(ctx context.Context, texts []string) ([]vector.Vector, error) {
	const op = "embedding.Embed"
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.DeadlineExceeded, op)
	}
	body, err := json.Marshal(request{Model: c.space.Model, Input: texts, Format: "float"})
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, op)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, op)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.ModelUnavailable, op)
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end, or is of no use
	if res.StatusCode != http.StatusOK {
		return nil, fault.Wrap(fmt.Errorf("model proxy answered with status %d", res.StatusCode), codeOf(res), op)
	}
	most := int64(len(texts)*c.space.Dimension*numberBytes + overhead)
	data, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.ModelUnavailable, op)
	case int64(len(data)) > most:
		return nil, fault.Wrap(errors.New("answer is too large"), fault.ModelFailed, op)
	}
	return c.read(data, len(texts))
}

// codeOf is the fault of an answer that is none. The proxy says it in a header, and
// its door in the body, which nobody has to read: who is refused there is
// configured wrongly.
func codeOf(res *http.Response) fault.Code {
	switch code := fault.Code(res.Header.Get(faultHeader)); code {
	case fault.ModelFailed, fault.RequestTooLarge, fault.InvalidRequest, fault.RateLimited, fault.Capacity, fault.DeadlineExceeded:
		return code
	default:
		return fault.ModelUnavailable
	}
}

// read takes an answer that has a vector of the space for each of n texts.
func (c *Client) read(data []byte, n int) ([]vector.Vector, error) {
	const op = "embedding.Embed"
	failed := func(text string) error { return fault.Wrap(errors.New(text), fault.ModelFailed, op) }
	var a answer
	if json.Unmarshal(data, &a) != nil {
		return nil, failed("answer is no list of embeddings") // the error of the decoder quotes
	}
	if len(a.Data) != n {
		return nil, failed(fmt.Sprintf("answer has %d embeddings for %d texts", len(a.Data), n))
	}
	out := make([]vector.Vector, n)
	for _, d := range a.Data {
		switch {
		case d.Index == nil || *d.Index < 0 || *d.Index >= n || out[*d.Index] != nil:
			return nil, failed("answer has no embedding for each text")
		case len(d.Embedding) != c.space.Dimension:
			// No text is at fault: none can be embedded so.
			err := fmt.Errorf("embeddings have %d numbers, and --embedding-dimension says %d", len(d.Embedding), c.space.Dimension)
			return nil, fault.Wrap(err, fault.ModelUnavailable, op)
		}
		v, ok := vector.Unit(d.Embedding)
		if !ok {
			return nil, failed("an embedding points nowhere")
		}
		out[*d.Index] = v
	}
	return out, nil
}
