package demomodel_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/demomodel"
)

func embedded(t *testing.T, url, body string) (status int, lists [][]float64, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+demomodel.PathEmbeddings, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var a struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	for i, d := range a.Data {
		if d.Index != i || len(d.Embedding) != demomodel.Dimension {
			t.Errorf("embedding %d has index %d and %d numbers", i, d.Index, len(d.Embedding))
		}
		lists = append(lists, d.Embedding)
	}
	return res.StatusCode, lists, fmt.Sprint(a)
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// What says alike is near, whole words or parts of them, and the same text is
// always the same.
func TestEmbeddings(t *testing.T) {
	srv := serve(t)
	status, got, first := embedded(t, srv.URL, `{"model":"demo","input":["colours of the sea","Colour: the sea!","a train to Vienna","...","?"]}`)
	if status != http.StatusOK || len(got) != 5 {
		t.Fatalf("status %d, %d embeddings", status, len(got))
	}
	for i, one := range got {
		if length := math.Abs(dot(one, one) - 1); length > 1e-5 {
			t.Errorf("embedding %d is not of length 1, by %g", i, length)
		}
	}
	if near, far := dot(got[0], got[1]), dot(got[0], got[2]); near <= 2*far {
		t.Errorf("alike %.3f, not alike %.3f", near, far)
	}
	if none := dot(got[0], got[3]); none != 0 {
		t.Errorf("a text without words is near to one with words: %.3f", none)
	}
	if _, _, again := embedded(t, srv.URL, `{"model":"demo","input":["colours of the sea","Colour: the sea!","a train to Vienna","...","?"]}`); again != first {
		t.Error("the same request has another answer")
	}
	if _, one, _ := embedded(t, srv.URL, `{"model":"demo","input":"a train to Vienna"}`); len(one) != 1 || fmt.Sprint(one[0]) != fmt.Sprint(got[2]) {
		t.Error("one text alone is something else than among others")
	}
	for _, body := range []string{`{}`, `[]`, `{"model":"demo"}`, `{"model":"demo","input":[]}`, `{"model":"demo","input":[1]}`, `{"model":"demo","input":"x","encoding_format":"base64"}`} {
		if status, _, _ := embedded(t, srv.URL, body); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", body, status)
		}
	}
}
