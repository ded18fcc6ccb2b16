package worker

import "log/slog"

// String keeps the token out of whatever is printed.
func (t Token) String() string { return "token for " + t.Audience }

// GoString is String.
func (t Token) GoString() string { return t.String() }

// LogValue keeps the token out of every log.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
