// Package vector compares texts by their embeddings: lists of numbers, of which
// those of texts that mean alike point the same way.
//
// It is pure, as the lexical rank is: nearness is decided here and not by a
// database, so every back end of the memory store gives the same answer in the
// same order.
package vector

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

// MaxDimension is how many numbers a vector may have. One is kept in four bytes
// for each, so a record's takes 16 KiB at most.
const MaxDimension = 4096

// numberBytes is what one number takes.
const numberBytes = 4

// Space is where vectors can be compared: those of one model, of one length.
type Space struct {
	Model     string
	Dimension int
}

// String names the space; a record is kept with it.
func (s Space) String() string { return fmt.Sprintf("%s/%d", s.Model, s.Dimension) }

// Vector has the length 1.
type Vector []float32

// Unit makes a Vector of what an endpoint answered. It is false for one that
// points nowhere, or has what is no number.
func Unit(of []float64) (Vector, bool) {
	length := 0.0
	for _, n := range of {
		length = math.Hypot(length, n)
	}
	if length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
		return nil, false
	}
	v := make(Vector, len(of))
	for i, n := range of {
		v[i] = float32(n / length)
	}
	return v, true
}

// Bytes is the stored form.
func (v Vector) Bytes() []byte {
	out := make([]byte, 0, numberBytes*len(v))
	for _, n := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(n))
	}
	return out
}

// Near is how near a stored vector is: the cosine of the angle, 1 for the same
// direction. It is false for a stored form of another length.
func (v Vector) Near(stored []byte) (near float64, ok bool) {
	if len(stored) != numberBytes*len(v) {
		return 0, false
	}
	for i, n := range v {
		near += float64(n) * float64(math.Float32frombits(binary.LittleEndian.Uint32(stored[numberBytes*i:])))
	}
	return near, !math.IsNaN(near)
}

// Nearest keeps the best of what it is shown, and no more than Limit of them.
type Nearest struct {
	Limit int
	found []lexical.Scored
}

// Take looks at one. What is no nearer than by chance is left out.
func (n *Nearest) Take(s lexical.Scored) {
	if s.Score <= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(n.found, s, func(a, b lexical.Scored) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
	})
	if at >= n.Limit {
		return
	}
	n.found = slices.Insert(n.found, at, s)
	n.found = n.found[:min(len(n.found), n.Limit)]
}

// Found are the best, the best first and equals by id.
func (n *Nearest) Found() []lexical.Scored { return n.found }
