package linearizability

import "sync"

// book keeps a history as it is told.
type book struct {
	mu      sync.Mutex
	open    map[living]int // the entry of what a client is doing
	entries []Entry
	made    map[int]int // operations of a client
	// every so many answers somebody is to be killed.
	every, answers int
	kill           chan struct{}
}

// living is a client in one life of its process.
type living struct{ client, life int }

func (b *book) hear(m message, life int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open, b.made = map[living]int{}, map[int]int{}
	}
	who := living{m.Client, life}
	switch {
	case m.Op != nil:
		b.open[who] = len(b.entries)
		b.made[m.Client]++
		b.entries = append(b.entries, Entry{Client: m.Client, Op: *m.Op, Outcome: Outcome{Result: unknown}, Call: m.At, Return: never})
	case m.Outcome != nil:
		e := &b.entries[b.open[who]]
		delete(b.open, who)
		e.Outcome = *m.Outcome
		if e.Outcome.Result != unknown {
			e.Return = m.At
		}
		b.tick()
	}
}

func (b *book) tick() {
	b.answers++
	if b.every == 0 || b.answers%b.every != 0 {
		return
	}
	select {
	case b.kill <- struct{}{}:
	default:
	}
}

// least is how many operations each of some clients has made.
func (b *book) least(first, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	least := b.made[first]
	for c := first; c < first+n; c++ {
		least = min(least, b.made[c])
	}
	return least
}

// close gives the history. What is open is unknown.
func (b *book) close() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries
}
