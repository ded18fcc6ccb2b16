package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// listEvents pages through committed events. after names the last sequence that
// the caller has; without it the page begins with the first.
func (a *API) listEvents(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	id, err := runID(r.PathValue("run"))
	if err != nil {
		return err
	}
	from, err := fromSequence(r, "")
	if err != nil {
		return err
	}
	limit, err := pageLimit(r)
	if err != nil {
		return err
	}
	page, err := a.cfg.Runs.Events(r.Context(), caller, id, from, limit)
	if err != nil {
		return err
	}
	out := struct {
		Events []json.RawMessage `json:"events"`
		// NextCursor goes into after; absent before the first event.
		NextCursor *uint64 `json:"next_cursor,omitempty"`
		Ended      bool    `json:"ended"`
	}{Events: publicEvents(page.Events), Ended: page.Ended}
	if page.Next > 0 {
		cursor := page.Next - 1
		out.NextCursor = &cursor
	}
	return writeJSON(w, http.StatusOK, out)
}

// publicEvents leaves out what is for operators only.
func publicEvents(in []json.RawMessage) []json.RawMessage {
	out := make([]json.RawMessage, 0, len(in))
	for _, raw := range in {
		if !internalEvent(raw) {
			out = append(out, raw)
		}
	}
	return out
}

func internalEvent(raw json.RawMessage) bool {
	var head struct {
		Type event.Type `json:"type"`
	}
	return json.Unmarshal(raw, &head) != nil || head.Type == event.TypeProviderMetadata
}

// fromSequence is the first sequence that a reader wants: one after the cursor
// that it names in the header (which wins, since a browser sends it when it
// comes back) or in the query; without one it is the first.
func fromSequence(r *http.Request, header string) (uint64, error) {
	if header != "" {
		n, err := strconv.ParseUint(header, 10, 64)
		if err != nil || n > event.MaxInteger {
			return 0, fault.New(fault.InvalidRequest, "api.cursor", fault.Detail("Last-Event-ID: the id of an event of this stream"))
		}
		return n + 1, nil
	}
	_, there, err := parameter(r, "after")
	if err != nil || !there {
		return 0, err
	}
	n, err := number(r, "after", 0, 0, event.MaxInteger)
	return n + 1, err
}
