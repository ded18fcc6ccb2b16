package lexical_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"The café's MENU, 42 items": "the cafe s menu 42 items",
		"cafe\u0301 CAFÉ ｃａｆｅ":      "cafe",
		"user.name-2:x_y":           "user name 2 x y",
		"東京都 tower":                 "東京 京都 tower",
		"水":                         "水",
		"  \t\n-- … ":               "",
		strings.Repeat("a", 65):     "",
		"\xff\xfeword\xff":          "word",
		"⒈ ½ $x.y":                  "1 12 x y",
		"Straße":                    "straße",
	} {
		if got := strings.Join(lexical.Query(text), " "); got != want {
			t.Errorf("%q has the words %q, want %q", text, got, want)
		}
	}
}

func TestBounds(t *testing.T) {
	var many strings.Builder
	for n := range lexical.MaxDistinct + 10 {
		_, _ = fmt.Fprintf(&many, "w%d ", n)
	}
	d := lexical.Index(many.String(), "w0 late")
	if d.Words != lexical.MaxDistinct+12 || len(d.Counts) != lexical.MaxDistinct || d.Counts["w0"] != 2 || d.Counts["late"] != 0 {
		t.Errorf("%d words, %d different", d.Words, len(d.Counts))
	}
	if n := len(lexical.Query(many.String())); n != lexical.MaxQuery {
		t.Errorf("a query of %d words", n)
	}
}

func TestFind(t *testing.T) {
	for text, want := range map[string]int{"zero Ône two": 5, "nothing": 0, "": 0, "東京都": 3} {
		if got := lexical.Find(text, []string{"one", "京都"}); got != want {
			t.Errorf("%q: found at %d, want %d", text, got, want)
		}
	}
}

// rank searches texts by a query.
func rank(query string, texts map[string]string) []lexical.Scored {
	words := lexical.Query(query)
	var c lexical.Corpus
	var hits []lexical.Hit
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		d := lexical.Index(texts[id])
		c.Texts++
		c.Words += d.Words
		hits = append(hits, lexical.Hit{ID: id, Words: d.Words, Counts: d.Counts})
	}
	return lexical.Rank(words, c, hits, 10)
}

func TestRank(t *testing.T) {
	texts := map[string]string{
		"a": "the coffee is in the kitchen",
		"b": "coffee coffee coffee",
		"c": "tea is in the kitchen, and the kitchen is blue",
		"d": "nothing of this",
		"e": "the rare zebra is in the kitchen",
	}
	ids := func(s []lexical.Scored) string {
		var out []string
		for _, x := range s {
			out = append(out, x.ID)
		}
		return strings.Join(out, "")
	}
	for query, want := range map[string]string{
		"coffee":         "ba", // more of it in less text
		"kitchen":        "cae",
		"zebra kitchen":  "eca", // the rarer word counts more
		"KITCHEN zebra!": "eca",
		"absent":         "",
		"":               "",
	} {
		if got := ids(rank(query, texts)); got != want {
			t.Errorf("%q ranks %q, want %q", query, got, want)
		}
	}
	// Equals are in the order of their ids, and the limit cuts.
	same := map[string]string{"z": "word", "y": "word", "x": "word"}
	if got := ids(rank("word", same)); got != "xyz" {
		t.Errorf("equals rank %q", got)
	}
	if got := ids(lexical.Rank([]string{"w"}, lexical.Corpus{Texts: 3, Words: 3}, []lexical.Hit{
		{ID: "b", Words: 1, Counts: map[string]int{"w": 1}}, {ID: "a", Words: 1, Counts: map[string]int{"w": 1}},
	}, 1)); got != "a" {
		t.Errorf("one is %q", got)
	}
}

// The formula itself, by hand: two texts of 2 and 4 words, the word once in the
// first and twice in the second.
func TestScore(t *testing.T) {
	got := lexical.Rank([]string{"w"}, lexical.Corpus{Texts: 4, Words: 12}, []lexical.Hit{
		{ID: "a", Words: 2, Counts: map[string]int{"w": 1}}, {ID: "b", Words: 4, Counts: map[string]int{"w": 2}},
	}, 10)
	rarity := math.Log(1 + (4-2+0.5)/(2+0.5))
	a := rarity * 1 * 2.2 / (1 + 1.2*(0.25+0.75*2/3))
	b := rarity * 2 * 2.2 / (2 + 1.2*(0.25+0.75*4/3))
	if len(got) != 2 || got[0].ID != "b" || math.Abs(got[0].Score-b) > 1e-12 || math.Abs(got[1].Score-a) > 1e-12 {
		t.Errorf("got %+v, want b %v, a %v", got, b, a)
	}
}

// No text breaks the index, and what a text is indexed by finds it.
func FuzzIndex(f *testing.F) {
	for _, s := range []string{"The café's MENU", "東京都 tower", "\xff\u0301 a", "ﬁne ǅ İ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := lexical.Index(text)
		total := 0
		for w, n := range d.Counts {
			total += n
			if w == "" || n < 1 || !utf8.ValidString(w) || strings.ContainsAny(w, ".$\x00 ") {
				t.Errorf("a word %q, %d times", w, n)
			}
		}
		if total > d.Words {
			t.Errorf("%d words counted of %d", total, d.Words)
		}
		for _, w := range lexical.Query(text) {
			if len(d.Counts) < lexical.MaxDistinct && d.Counts[w] == 0 {
				t.Errorf("%q does not find its own text", w)
			}
		}
		if at := lexical.Find(text, lexical.Query(text)); at < 0 || at > len(text) {
			t.Errorf("found at %d of %d", at, len(text))
		}
	})
}
