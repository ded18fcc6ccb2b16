package mint

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"cofferdam.dev/pkg/capability"
)

// Token is a signed capability. However it is printed or logged, only its id
// shows.
type Token struct {
	Audience capability.Audience
	// ID is the jti.
	ID        string
	ExpiresAt time.Time
	compact   string
	kid       string
}

// Reveal is the compact JWS: a secret, for the answer and for nothing else.
func (t Token) Reveal() string { return t.compact }

// Format implements fmt.Formatter for every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "capability "+t.ID) }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.ID) }
