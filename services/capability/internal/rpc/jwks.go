package rpc

import (
	"log/slog"
	"net/http"
)

// jwks serves the JWK set. It is not to be stored on the way: receivers decide
// themselves how long a key is good for. A replica that does not know the set as
// it is now has none to give, and receivers go on with what they have.
func jwks(set func() ([]byte, error), log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := set()
		if err != nil {
			log.WarnContext(r.Context(), "no key set was given", "error", err.Error())
			http.Error(w, "the keys are not known at the moment", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/jwk-set+json")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // a client that has gone needs no answer
	})
}
