package memory

import (
	"context"
	"encoding/json"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// screen looks into the content: the contract's "redact secrets and refuse what
// tries to widen permissions, tools or network". Whatever passes is untrusted all
// the same. Of what is refused, the log and the caller are told the rule.
func (s *Service) screen(ctx context.Context, w *write) error {
	p := w.put
	if _, found := s.cfg.Secrets.Redact(p.Key); found > 0 {
		return s.reject(ctx, w, "secret_key", "key: it has a secret in it; take another key")
	}
	clean, found := s.cfg.Secrets.Redact(string(p.Content))
	if p.ContentType == TypeJSON {
		// A secret may be written in escapes, or be all that a string's quotes hold.
		_, hidden := s.cfg.Secrets.Redact(strings.Join(stringsOf(clean), "\n"))
		if hidden > 0 || !json.Valid([]byte(clean)) {
			return s.reject(ctx, w, "secret", "content: it has a secret in it that cannot be cut out; leave it out")
		}
	}
	if rule := widens(p.ContentType, clean); rule != "" {
		return s.reject(ctx, w, rule, "content: rule "+rule+": a memory says what is so, and not what an agent may do")
	}
	w.content, w.redactions = []byte(clean), found
	return nil
}

func (s *Service) reject(ctx context.Context, w *write, rule, detail string) error {
	e := w.caller.Grant.Envelope()
	s.cfg.Logger.WarnContext(ctx, "a memory was refused for its content",
		"rule", rule, "scope", string(w.put.Scope), "kind", string(w.put.Kind), "binding", e.BindingID, "run", e.RunID)
	return fault.New(fault.MemoryRejected, "memory.screen", fault.Detail(detail))
}
