package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

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

var mimePattern = regexp.MustCompile(`^[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,128}$`)

// on_disconnect of a run that is started without being streamed: it goes on by
// default (ADR 10). With cancel, whoever reads its first stream is taken for the
// request that started it.
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

// fileBody is a file, or names one that was stored for the conversation.
type fileBody struct {
	Name     string `json:"name,omitempty"`
	MIMEType string `json:"mime_type,omitempty"`
	// Data is base64 in JSON.
	Data   []byte `json:"data,omitempty"`
	FileID string `json:"file_id,omitempty"`
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
		return bad("agent_id: required, " + idRule)
	case !event.ValidID(b.ConversationID):
		return bad("conversation_id: required, " + idRule)
	case strings.TrimSpace(b.Message) == "":
		return bad("message: required")
	case len(b.Message) > agui.MaxMessageBytes:
		return large("message: at most 256 KiB")
	case b.IdempotencyKey != "" && !event.ValidID(b.IdempotencyKey):
		return bad("idempotency_key: " + idRule)
	case len(b.ClientContext) > 0 && b.ClientContext[0] != '{':
		return bad("client_context: an object")
	case len(b.ClientContext) > agui.MaxContextBytes:
		return large("client_context: at most 64 KiB")
	case len(b.Files) > maxFiles:
		return large("files: at most 16")
	case b.OnDisconnect != "" && b.OnDisconnect != disconnectContinue && b.OnDisconnect != disconnectCancel:
		return bad("on_disconnect: continue or cancel")
	}
	files, err := inline(b.Files)
	return runs.StartRequest{
		AgentID: b.AgentID, ConversationID: b.ConversationID, Message: b.Message, Files: files,
		ClientContext: b.ClientContext, IdempotencyKey: b.IdempotencyKey, CancelOnDisconnect: b.OnDisconnect == disconnectCancel,
	}, err
}

func inline(files []fileBody) (out []runs.InlineFile, err error) {
	for i, f := range files {
		code, detail := fault.InvalidRequest, ""
		switch {
		case f.FileID != "" && (f.Name != "" || f.MIMEType != "" || f.Data != nil):
			detail = "file_id: alone, the file has its name and type"
		case f.FileID != "" && !event.ValidID(f.FileID):
			detail = "file_id: " + idRule
		case f.FileID != "":
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
		out = append(out, runs.InlineFile{ID: f.FileID, Name: f.Name, MIMEType: f.MIMEType, Data: f.Data})
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
	return writeJSON(w, http.StatusAccepted, startedBody{started.RunID, started.BindingID, started.Epoch})
}

// startedBody is the answer to whatever starts a run.
type startedBody struct {
	RunID     string `json:"run_id"`
	BindingID string `json:"binding_id"`
	Epoch     uint32 `json:"epoch"`
}
