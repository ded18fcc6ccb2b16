package supervise

import "time"

// Defaults of a Backoff.
const (
	defaultFirst   = 100 * time.Millisecond
	defaultMost    = 5 * time.Second
	defaultSettled = 10 * time.Second
)

// Backoff says how long to wait before a child is started again.
type Backoff struct {
	// First is the pause after a first end; zero is 100 ms.
	First time.Duration
	// Most bounds the pause, which doubles with each end; zero is 5 s.
	Most time.Duration
	// Settled is how long a life lasts after which the pause is First again; zero
	// is 10 s.
	Settled time.Duration
}

func (b Backoff) withDefaults() Backoff {
	orDefault := func(d, otherwise time.Duration) time.Duration {
		if d <= 0 {
			return otherwise
		}
		return d
	}
	b.First = orDefault(b.First, defaultFirst)
	b.Most = max(orDefault(b.Most, defaultMost), b.First)
	b.Settled = orDefault(b.Settled, defaultSettled)
	return b
}

// next is the pause after a life of the given length, where the pause before that
// life was last, or 0 if there was none.
func (b Backoff) next(last, life time.Duration) time.Duration {
	if last <= 0 || life >= b.Settled {
		return b.First
	}
	return min(2*last, b.Most)
}
