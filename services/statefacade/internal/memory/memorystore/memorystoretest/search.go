package memorystoretest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

// found is an answer of Find as text: what is known of all, and the hits by key.
func (t test) found(namespace, words string, at time.Time, kinds ...memory.Kind) string {
	t.Helper()
	c, hits, err := t.Find(t.Context(), namespace, strings.Fields(words), kinds, at)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(hits, func(a, b lexical.Hit) int { return strings.Compare(a.ID, b.ID) })
	if len(hits) == 0 {
		return "nothing"
	}
	out := []string{fmt.Sprintf("%d/%d", c.Texts, c.Words)}
	for _, h := range hits {
		out = append(out, fmt.Sprintf("%s/%d", h.ID, h.Words))
		for w := range strings.FieldsSeq(words) {
			out = append(out, fmt.Sprint(h.Counts[w]))
		}
	}
	return strings.Join(out, " ")
}

func find(t test) {
	t.want(t.found("ns", "tea", now), "nothing")
	t.make(change("1", "ns", "a", "Tea and tea, and coffee", 0))
	t.make(change("2", "ns", "b", "coffee", 0))
	t.make(change("3", "ns", "tea", "only by its key; $x.y", 0))
	t.want(t.found("ns", "tea coffee", now), "3/15 a/6 2 1 b/2 0 1 tea/7 1 0")
	t.want(t.found("ns", "te", now), "nothing")
	t.want(t.found("ns", "x y", now), "3/15 tea/7 1 1")
	// The best first, and the same on every back end.
	c, hits, err := t.Find(t.Context(), "ns", []string{"tea", "coffee"}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range lexical.Rank([]string{"tea", "coffee"}, c, hits, 10) {
		order = append(order, fmt.Sprintf("%s %.6f", s.ID, s.Score))
	}
	t.want(strings.Join(order, ", "), "a 1.046296, b 0.622896, tea 0.403909")
}

// A record is found by what stands, not by what stood.
func findStanding(t test) {
	t.make(lasting("1", "key", "old words", 0))
	c := lasting("2", "key", "new ones", 1)
	t.make(c)
	t.want(t.found("ns", "old", now), "nothing")
	t.want(t.found("ns", "new", now), "1/3 key/3 1")
	t.want(t.found("ns", "new", now.Add(time.Hour)), "nothing")
	t.make(deletion("3", "ns", "key", 2))
	t.want(t.found("ns", "new", now), "nothing")
	t.make(change("4", "ns", "key", "again", 0))
	t.want(t.found("ns", "new again", now), "1/2 key/2 0 1")
}

func findNamespace(t test) {
	t.make(change("1", "ns-1", "mine", "secret words", 0))
	t.make(change("2", "ns-2", "yours", "secret words words", 0))
	t.want(t.found("ns-1", "words", now), "1/3 mine/3 1")
	t.want(t.found("ns-2", "words", now), "1/4 yours/4 2")
	t.want(t.found("ns", "words", now), "nothing")
}

func findKinds(t test) {
	for n, kind := range []memory.Kind{memory.KindSemantic, memory.KindProcedural, memory.KindEpisodicReference} {
		c := change(fmt.Sprint(n), "ns", fmt.Sprint("key", n), "word", 0)
		c.Record.Kind = kind
		t.make(c)
	}
	t.want(t.found("ns", "word", now, memory.KindProcedural), "3/6 key1/2 1")
	t.want(t.found("ns", "word", now, memory.KindEpisodicReference, memory.KindSemantic), "3/6 key0/2 1 key2/2 1")
	t.want(t.found("ns", "word", now), "3/6 key0/2 1 key1/2 1 key2/2 1")
}

func findLong(t test) {
	var words []string
	for n := range lexical.MaxDistinct - 1 {
		words = append(words, fmt.Sprint("w", n))
	}
	t.make(change("1", "ns", "key", strings.Join(words, " "), 0))
	t.want(t.found("ns", "w0 w1000", now), fmt.Sprintf("1/%d key/%d 1 1", lexical.MaxDistinct, lexical.MaxDistinct))
}
