package proxy

import "time"

// MaxRequest is the bound of a request body where Limits do not say otherwise,
// in bytes.
const MaxRequest = 8 << 20

// Limits bound every call. A zero field takes the default that its comment
// gives.
type Limits struct {
	// MaxRequest bounds a request body, in bytes: [MaxRequest], 8 MiB.
	MaxRequest int
	// MaxFrame bounds one event of a streamed answer, in bytes: 1 MiB.
	MaxFrame int
	// MaxAnswer bounds a whole answer, in bytes: 8 MiB.
	MaxAnswer int64
	// MaxStream bounds all events of a streamed answer, in bytes: 64 MiB.
	MaxStream int64
	// MaxCalls bounds the calls that run at once: 128.
	MaxCalls int

	// ReadTimeout bounds how long a caller may take to send its request: 30 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds how long a caller may leave one event unread: 30 s.
	WriteTimeout time.Duration
	// DialTimeout bounds connecting to an endpoint, name resolution included: 10 s.
	DialTimeout time.Duration
	// TLSTimeout bounds the TLS handshake with an endpoint: 10 s.
	TLSTimeout time.Duration
	// HeaderTimeout bounds the wait for an endpoint's answer to begin: 5 min. An
	// answer that is not streamed begins when the model is done.
	HeaderTimeout time.Duration
	// IdleTimeout bounds the silence within an answer: 2 min.
	IdleTimeout time.Duration
	// EndTimeout bounds how long a stream that is whole stays open, on a wire that
	// has no terminal event: 5 s.
	EndTimeout time.Duration
	// MaxDuration bounds a call: 30 min. A run's deadline usually comes first.
	MaxDuration time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxRequest:    either(l.MaxRequest, MaxRequest),
		MaxFrame:      either(l.MaxFrame, 1<<20),
		MaxAnswer:     either(l.MaxAnswer, 8<<20),
		MaxStream:     either(l.MaxStream, 64<<20),
		MaxCalls:      either(l.MaxCalls, 128),
		ReadTimeout:   either(l.ReadTimeout, 30*time.Second),
		WriteTimeout:  either(l.WriteTimeout, 30*time.Second),
		DialTimeout:   either(l.DialTimeout, 10*time.Second),
		TLSTimeout:    either(l.TLSTimeout, 10*time.Second),
		HeaderTimeout: either(l.HeaderTimeout, 5*time.Minute),
		IdleTimeout:   either(l.IdleTimeout, 2*time.Minute),
		EndTimeout:    either(l.EndTimeout, 5*time.Second),
		MaxDuration:   either(l.MaxDuration, 30*time.Minute),
	}
}

func either[T int | int64 | time.Duration](set, otherwise T) T {
	if set > 0 {
		return set
	}
	return otherwise
}
