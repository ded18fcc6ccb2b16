package scale

import (
	"fmt"
	"io"
	"strings"
)

// known is how much of a canary tells whose it is, in bytes after the prefix:
// memory holds texts that were cut off, or whose end was written over.
const known = 8

// finder counts what stands where.
type finder struct {
	r *Report
	// of knows the owner of every canary by its beginning.
	of map[string]*conversation
	// progress hears of each crossing: place and owner, never the canary.
	progress io.Writer
}

func newFinder(all []*conversation, r *Report, progress io.Writer) finder {
	f := finder{r: r, of: make(map[string]*conversation, len(all)), progress: progress}
	for _, v := range all {
		f.of[v.canary[:len(canaryPrefix)+known]] = v
	}
	return f
}

// in takes note of a place that belongs to a conversation, or to nobody. What
// only begins like a canary, and is nobody's, is none.
func (f finder) in(place, text string, owner *conversation) {
	f.r.Places++
	for {
		at := strings.Index(text, canaryPrefix)
		if at < 0 || len(text) < at+len(canaryPrefix)+known {
			return
		}
		text = text[at:]
		switch whose := f.of[text[:len(canaryPrefix)+known]]; whose {
		case nil:
		case owner:
			f.r.CanariesSeen++
		default:
			f.r.CrossedCanaries++
			_, _ = fmt.Fprintf(f.progress, "the canary of %s stands in %s\n", whose.name, place)
		}
		text = text[len(canaryPrefix):]
	}
}
