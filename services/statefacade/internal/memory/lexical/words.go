package lexical

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	// MaxDistinct is how many different words of one text are found again; those
	// after them are counted and not found.
	MaxDistinct = 1024
	// MaxQuery is how many different words of one query are looked for.
	MaxQuery = 16
	// maxWord bounds one word in bytes; what is longer is no word (base64, a hash).
	maxWord = 64
)

// Document is a text as an index keeps it.
type Document struct {
	// Words in all.
	Words int
	// Counts of its first MaxDistinct different words.
	Counts map[string]int
}

// Index takes texts apart into the words that they are found by.
func Index(texts ...string) Document {
	d := Document{Counts: make(map[string]int)}
	for _, t := range texts {
		each(t, func(w string, _ int) bool {
			d.Words++
			if _, known := d.Counts[w]; known || len(d.Counts) < MaxDistinct {
				d.Counts[w]++
			}
			return true
		})
	}
	return d
}

// Query gives the different words of a query, at most MaxQuery, in their order.
func Query(text string) []string {
	var words []string
	seen := make(map[string]bool)
	each(text, func(w string, _ int) bool {
		if !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
		return len(words) < MaxQuery
	})
	return words
}

// Find gives the byte at which the first of the words begins, or 0.
func Find(text string, words []string) int {
	wanted := make(map[string]bool, len(words))
	for _, w := range words {
		wanted[w] = true
	}
	at := 0
	each(text, func(w string, begins int) bool {
		if wanted[w] {
			at = begins
			return false
		}
		return true
	})
	return at
}

// each gives the words of a text with the bytes at which they begin, until take
// says no. A word is a run of letters and digits, without regard to case, accents
// and width. Scripts that write no spaces give each pair of neighbours, because
// only a dictionary could tell their words.
func each(text string, take func(word string, begins int) bool) {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !inWord(r) {
			at += size
			continue
		}
		end := at
		dense := isDense(r)
		for end < len(text) {
			r, size = utf8.DecodeRuneInString(text[end:])
			if !inWord(r) || isDense(r) != dense && !unicode.Is(unicode.Mn, r) {
				break
			}
			end += size
		}
		if !split(text[at:end], at, dense, take) {
			return
		}
		at = end
	}
}

func split(run string, begins int, dense bool, take func(string, int) bool) bool {
	if !dense {
		w := fold(run)
		return w == "" || len(w) > maxWord || take(w, begins)
	}
	_, first := utf8.DecodeRuneInString(run)
	if first == len(run) {
		return take(fold(run), begins)
	}
	for at, next := 0, first; next < len(run); {
		_, size := utf8.DecodeRuneInString(run[next:])
		if w := fold(run[at : next+size]); w != "" && !take(w, begins+at) {
			return false
		}
		at, next = next, next+size
	}
	return true
}

func inWord(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.Mn, unicode.Mc) }

// isDense tells letters of scripts without spaces.
func isDense(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// fold makes one of all ways to write a word.
func fold(word string) string {
	plain := true
	for i := range len(word) {
		plain = plain && word[i] < utf8.RuneSelf
	}
	if plain {
		return strings.ToLower(word)
	}
	decomposed := norm.NFKD.String(strings.ToLower(norm.NFKC.String(word)))
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) || !inWord(r) { // some numbers decompose into signs
			return -1
		}
		return r
	}, decomposed)
}
