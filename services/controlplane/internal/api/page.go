package api

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/ui"
)

// pagePath is where the page for people is, at the operators' address. It is no part
// of the API that clients are promised: its files and what they ask change together.
const pagePath = "/ui/"

// servePage adds the page, the sessions that its links open, and what it asks: the
// routes of callers and of operators, for whoever has the relation operator. A run
// that it starts, and one that it shows, is the subject's own, as everywhere.
func (a *API) servePage(mux *http.ServeMux) {
	mux.HandleFunc("GET /ui", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, pagePath, http.StatusPermanentRedirect)
	})
	for _, name := range ui.Files() {
		pattern := "GET " + pagePath + name
		if name == "" {
			pattern += "{$}"
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			boundWrite(w)
			if err := ui.Serve(w, name); err != nil {
				a.refuse(w, r, fault.Wrap(err, fault.Internal, "api.page"))
			}
		})
	}
	mux.HandleFunc("POST "+pagePath+"session", func(w http.ResponseWriter, r *http.Request) {
		if err := a.openSession(w, r); err != nil {
			a.refuse(w, r, err)
		}
	})
	page := &API{a.cfg}
	page.cfg.Authn = a.cfg.Sessions
	mux.Handle("DELETE "+pagePath+"session", page.authenticated(page.closeSession))
	routes := page.callers()
	maps.Copy(routes, page.operators())
	asked := http.NewServeMux()
	for pattern, h := range routes {
		asked.Handle(pattern, page.authenticated(page.operator(h)))
	}
	asked.Handle("/", page.authenticated(unknown))
	mux.Handle(pagePath+"api/", http.StripPrefix(strings.TrimSuffix(pagePath, "/"), asked))
}

// openSession takes the code of a link, for a subject that has the relation operator.
func (a *API) openSession(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Code string `json:"code"`
	}
	if err := decode(w, r, &b); err != nil {
		return err
	}
	s, err := a.cfg.Sessions.Open(r.Context(), b.Code)
	if err != nil {
		return err
	}
	if err := a.cfg.Authz.Check(r.Context(), s.Caller.Subject, authz.Operator, authz.System); err != nil {
		a.cfg.Sessions.End(s.Token)
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}{s.Token, s.Until})
}

func (a *API) closeSession(w http.ResponseWriter, r *http.Request, _ runs.Caller) error {
	a.cfg.Sessions.Close(r)
	return writeJSON(w, http.StatusOK, struct{}{})
}
