// Package lexical finds words in texts and ranks texts by them (Okapi BM25).
//
// It is pure: what a text's words are and how texts are ranked is decided here
// and not by a database, so every back end of the memory store gives the same
// answer in the same order. And it only ever sees one namespace: the statistics
// of a database's own full-text index would be those of all namespaces, and a
// score would tell one of them about the others.
package lexical

import (
	"cmp"
	"math"
	"slices"
)

// The constants of BM25, at their usual values: how soon more of the same word
// says nothing more, and how much a long text's words count less.
const (
	saturation = 1.2
	lengths    = 0.75
)

// Corpus is what has to be known of all the texts that are searched.
type Corpus struct {
	// Texts and Words count them all, also the texts that were not found.
	Texts, Words int
}

// Hit is a text that has at least one of the words.
type Hit struct {
	ID string
	// Words of the text in all.
	Words int
	// Counts of the words that were looked for.
	Counts map[string]int
}

// Scored is a text with its rank.
type Scored struct {
	ID    string
	Score float64
}

// Rank orders hits, the best first and equals by id, and keeps at most limit.
// Words are looked at in the order in which they are given, so that one input has
// one result to the last bit.
func Rank(words []string, c Corpus, hits []Hit, limit int) []Scored {
	found := make(map[string]int, len(words))
	for _, h := range hits {
		for _, w := range words {
			if h.Counts[w] > 0 {
				found[w]++
			}
		}
	}
	average := float64(c.Words) / float64(max(c.Texts, 1))
	out := make([]Scored, 0, len(hits))
	for _, h := range hits {
		s := Scored{ID: h.ID}
		for _, w := range words {
			s.Score += weight(h.Counts[w], found[w], h.Words, average, c.Texts)
		}
		if s.Score > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Scored) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), limit)]
}

// weight of one word in one text: its rarity times how much the text is about it.
func weight(count, found, words int, average float64, texts int) float64 {
	if count == 0 {
		return 0
	}
	rarity := math.Log(1 + (float64(max(texts, found)-found)+0.5)/(float64(found)+0.5))
	length := 1.0
	if average > 0 {
		length = 1 - lengths + lengths*float64(words)/average
	}
	n := float64(count)
	return rarity * n * (saturation + 1) / (n + saturation*length)
}
