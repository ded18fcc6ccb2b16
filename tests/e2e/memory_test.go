package e2e

import (
	"crypto/rand"
	"strings"
	"testing"

	"cofferdam.dev/tests/stack"
)

// What an agent remembers for a user is there in another conversation of that user,
// in another sandbox, and for nobody else.
func TestAnotherConversationRemembers(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	word, key := strings.ToLower(rand.Text()), "k-"+rand.Text()
	const put, search, get = ">>call memory_put ", ">>call memory_search ", ">>call memory_get "

	r := w.talk().tell(t, put+`{"scope":"user","key":"`+key+`","content":"The word is `+word+`.","kind":"semantic","revision":0}`)
	if finished := r.of("tool.finished"); len(finished) != 1 || !strings.Contains(string(finished[0].Data), `\"revision\":1`) && !strings.Contains(string(finished[0].Data), `"revision":1`) {
		t.Fatalf("it was not remembered: %s", r)
	}
	found := w.talk().tell(t, search+`{"scope":"user","query":"`+word+`"}`)
	if finished := found.of("tool.finished"); len(finished) != 1 || !strings.Contains(string(finished[0].Data), key) {
		t.Errorf("another conversation does not find it: %s", found)
	}
	// Parts of words are alike for the embeddings of the demo model, and are no words.
	part := word[:len(word)-4]
	for rank, want := range map[string]bool{"vector": true, "lexical": false} {
		alike := w.talk().tell(t, search+`{"scope":"user","query":"`+part+`","rank":"`+rank+`"}`)
		finished := alike.of("tool.finished")
		if len(finished) != 1 || strings.Contains(string(finished[0].Data), key) != want || !strings.Contains(string(finished[0].Data), rank) {
			t.Errorf("a part of the word, by %s rank: %s", rank, alike)
		}
	}
	other, err := w.Client(t.Context(), stack.Operator)
	if err != nil {
		t.Fatal(err)
	}
	c := w.talk()
	c.client = other
	foreign := c.tell(t, search+`{"scope":"user","query":"`+word+`"}`+"\n"+get+`{"scope":"user","key":"`+key+`"}`)
	if strings.Contains(foreign.text(t), "The word is") || len(foreign.of("tool.finished")) > 1 {
		t.Errorf("another user reads it: %s", foreign)
	}
	for _, e := range foreign.of("tool.finished") {
		if strings.Contains(string(e.Data), key) {
			t.Errorf("another user finds it: %s", e.Data)
		}
	}
}
