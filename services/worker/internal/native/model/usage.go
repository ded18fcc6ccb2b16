package model

import "cofferdam.dev/pkg/event"

// Usage counts tokens. What a provider did not tell is nil.
type Usage struct {
	// Input has the cached ones in it.
	Input, Output, Cached *uint64
}

// Count is a number that was told and that an event can have, else nil.
func Count(told bool, n int64) *uint64 {
	if !told || n < 0 || n > event.MaxInteger {
		return nil
	}
	u := uint64(n)
	return &u
}

// Sum is nil where one of the numbers is unknown: a part is no sum.
func Sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	n := min(*a+*b, event.MaxInteger)
	return &n
}

// Plus is the usage of both.
func (u Usage) Plus(more Usage) Usage {
	return Usage{Input: Sum(u.Input, more.Input), Output: Sum(u.Output, more.Output), Cached: Sum(u.Cached, more.Cached)}
}
