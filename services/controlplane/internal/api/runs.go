package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// Bounds of a start.
const (
	maxFiles     = 16
	maxFileBytes = 8 << 20
	maxNameBytes = 255
)

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

var mimePattern = regexp.MustCompile(`^[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,128}$`)

// onDisconnect of a run that is started without being streamed: it goes on.
const (
	disconnectContinue = "continue"
	disconnectCancel   = "cancel"
)

type startBody struct {
	AgentID        string          `json:"agent_id"`
	ConversationID string          `json:"conversation_id"`
	Message        string          `json:"message"`
	Files          []fileBody      `json:"files,omitempty"`
	ClientContext  json.RawMessage `json:"client_context,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	OnDisconnect   string          `json:"on_disconnect,omitempty"`
}

type fileBody struct {
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	// Data is base64 in JSON.
	Data []byte `json:"data"`
}

func (b startBody) request() (runs.StartRequest, error) {
	refuse := func(code fault.Code, detail string) (runs.StartRequest, error) {
		return runs.StartRequest{}, fault.New(code, "api.startRun", fault.Detail(detail))
	}
	bad := func(detail string) (runs.StartRequest, error) { return refuse(fault.InvalidRequest, detail) }
	large := func(detail string) (runs.StartRequest, error) { return refuse(fault.RequestTooLarge, detail) }
	if string(b.ClientContext) == "null" {
		b.ClientContext = nil // as for every field that may be left out
	}
	switch {
	case !event.ValidID(b.AgentID):
		return bad("agent_id: required, 1 to 128 characters of [A-Za-z0-9._:-]")
	case !event.ValidID(b.ConversationID):
		return bad("conversation_id: required, 1 to 128 characters of [A-Za-z0-9._:-]")
	case strings.TrimSpace(b.Message) == "":
		return bad("message: required")
	case len(b.Message) > agui.MaxMessageBytes:
		return large("message: at most 256 KiB")
	case b.IdempotencyKey != "" && !event.ValidID(b.IdempotencyKey):
		return bad("idempotency_key: 1 to 128 characters of [A-Za-z0-9._:-]")
	case len(b.ClientContext) > 0 && b.ClientContext[0] != '{':
		return bad("client_context: an object")
	case len(b.ClientContext) > agui.MaxContextBytes:
		return large("client_context: at most 64 KiB")
	case len(b.Files) > maxFiles:
		return large("files: at most 16")
	case b.OnDisconnect != "" && b.OnDisconnect != disconnectContinue && b.OnDisconnect != disconnectCancel:
		return bad("on_disconnect: continue or cancel")
	case b.OnDisconnect == disconnectCancel:
		// Its meaning hangs on the first stream of the run, which only the
		// replica that drives it can know.
		return refuse(fault.NotImplemented, "on_disconnect: cancel")
	}
	files, err := inline(b.Files)
	return runs.StartRequest{
		AgentID: b.AgentID, ConversationID: b.ConversationID, Message: b.Message, Files: files,
		ClientContext: b.ClientContext, IdempotencyKey: b.IdempotencyKey,
	}, err
}

func inline(files []fileBody) (out []runs.InlineFile, err error) {
	for i, f := range files {
		code, detail := fault.InvalidRequest, ""
		switch {
		case f.Name == "" || len(f.Name) > maxNameBytes:
			detail = "name: required, at most 255 bytes"
		case !mimePattern.MatchString(f.MIMEType):
			detail = "mime_type: type/subtype in lower case"
		case len(f.Data) == 0:
			detail = "data: required, base64"
		case len(f.Data) > maxFileBytes:
			code, detail = fault.RequestTooLarge, "data: at most 8 MiB"
		}
		if detail != "" {
			return nil, fault.New(code, "api.startRun", fault.Detail("files["+strconv.Itoa(i)+"]."+detail))
		}
		out = append(out, runs.InlineFile{Name: f.Name, MIMEType: f.MIMEType, Data: f.Data})
	}
	return out, nil
}

// mayInvoke is asked before anything else is done for an agent.
func (a *API) mayInvoke(r *http.Request, caller runs.Caller, agentID string) error {
	return a.cfg.Authz.Check(r.Context(), caller.Subject, authz.CanInvoke, authz.AgentID(agentID))
}

func (a *API) startRun(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	var b startBody
	if err := decode(w, r, &b); err != nil {
		return err
	}
	req, err := b.request()
	if err != nil {
		return err
	}
	if err := a.mayInvoke(r, caller, req.AgentID); err != nil {
		return err
	}
	started, err := a.cfg.Runs.Start(r.Context(), caller, req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, struct {
		RunID     string `json:"run_id"`
		BindingID string `json:"binding_id"`
		Epoch     uint32 `json:"epoch"`
	}{started.RunID, started.BindingID, started.Epoch})
}

type statusBody struct {
	RunID           string          `json:"run_id"`
	BindingID       string          `json:"binding_id"`
	Epoch           uint32          `json:"epoch"`
	Generation      uint32          `json:"lease_generation"`
	AgentID         string          `json:"agent_id"`
	ConversationID  string          `json:"conversation_id"`
	State           string          `json:"state"`
	End             string          `json:"end,omitempty"`
	EndReason       string          `json:"end_reason,omitempty"`
	Events          uint64          `json:"events"`
	DurableRevision uint64          `json:"durable_revision"`
	SideEffects     string          `json:"side_effect_status,omitempty"`
	StartedAt       time.Time       `json:"started_at"`
	Deadline        time.Time       `json:"deadline,omitzero"`
	EndedAt         time.Time       `json:"ended_at,omitzero"`
	Terminal        json.RawMessage `json:"terminal,omitempty"`
}

func (a *API) getRun(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	id, err := runID(r.PathValue("run"))
	if err != nil {
		return err
	}
	s, err := a.cfg.Runs.Status(r.Context(), caller, id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, statusBody{
		RunID: s.RunID, BindingID: s.BindingID, Epoch: s.Epoch, Generation: s.Generation, AgentID: s.AgentID,
		ConversationID: s.ConversationID, State: s.State, End: s.End, EndReason: s.EndReason, Events: s.Events,
		DurableRevision: s.DurableRevision, SideEffects: s.SideEffects, StartedAt: s.StartedAt, Deadline: s.Deadline,
		EndedAt: s.EndedAt, Terminal: s.Terminal,
	})
}

// runAction serves POST /api/v1/runs/{run_id}:cancel and :resume. A colon within
// a path segment is no pattern of net/http, so the segment is taken apart here.
func (a *API) runAction(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	segment := r.PathValue("run")
	colon := strings.LastIndexByte(segment, ':')
	if colon < 0 {
		return unknown(w, r, caller)
	}
	id, err := runID(segment[:colon])
	if err != nil {
		return err
	}
	switch segment[colon+1:] {
	case "cancel":
		return a.cancelRun(w, r, caller, id)
	case "resume":
		return missing(w, r, caller)
	default:
		return unknown(w, r, caller)
	}
}

func (a *API) cancelRun(w http.ResponseWriter, r *http.Request, caller runs.Caller, id string) error {
	if r.ContentLength != 0 {
		var nothing struct{}
		if err := decode(w, r, &nothing); err != nil {
			return err
		}
	}
	c, err := a.cfg.Runs.Cancel(r.Context(), caller, id, event.CancelledByClient)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Cancelled   bool   `json:"cancelled"`
		RunID       string `json:"run_id"`
		Confirmed   bool   `json:"confirmed"`
		SideEffects string `json:"side_effect_status"`
	}{c.Cancelled, c.RunID, c.Confirmed, c.SideEffectStatus})
}

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

func runID(s string) (string, error) {
	if !event.ValidID(s) {
		return "", fault.New(fault.NotFound, "api.runID")
	}
	return s, nil
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
