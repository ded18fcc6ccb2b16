// Package ui is the page for people at the operators' address: a few static files,
// and the sessions that a one-time link opens.
//
// The page itself is public and says nothing; whatever it shows it asks the API for,
// with a bearer token of the caller's or of a session, in a header. There is no
// cookie, so no other page can ask in the caller's name. What comes from outside is
// put into the page as text: the policy that is sent along allows no script and no
// style but the page's own files, and no text that becomes markup.
package ui

import (
	"embed"
	"net/http"
	"path"
)

//go:embed static
var static embed.FS

// policy of the page. require-trusted-types-for refuses what would make markup of
// text, also in code that a later version adds.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are those of the page's files.
func types() map[string]string {
	return map[string]string{
		"index.html": "text/html; charset=utf-8",
		"app.js":     "text/javascript; charset=utf-8",
		"app.css":    "text/css; charset=utf-8",
	}
}

// Files are the names under which Serve has something; "" is the page.
func Files() []string { return []string{"", "app.js", "app.css"} }

// Serve answers with one of Files.
func Serve(w http.ResponseWriter, name string) error {
	if name == "" {
		name = "index.html"
	}
	raw, err := static.ReadFile(path.Join("static", name))
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", types()[name])
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-cache")
	_, _ = w.Write(raw) // a client that has gone needs no answer
	return nil
}
