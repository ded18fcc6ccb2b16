package api

import (
	_ "embed"
	"net/http"
)

// openAPI describes the routes of callers and of operators: OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI []byte

// describe serves the document. Whoever can reach the address may read it: it says
// what every caller is told, and nothing of any.
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	boundWrite(w)
	_, _ = w.Write(openAPI) // a client that has gone needs no answer
}
