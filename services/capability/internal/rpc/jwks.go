package rpc

import "net/http"

// jwks serves the JWK set. It is not to be stored on the way: receivers decide
// themselves how long a key is good for.
func jwks(set []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jwk-set+json")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(set) // a client that has gone needs no answer
	})
}
