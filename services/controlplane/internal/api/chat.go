package api

import (
	"context"
	"encoding/json"
	"net/http"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// The chat routes are those that existing clients speak: each names the
// conversation and never a run, and start and resume stream their run in the same
// request.

// chatBody starts a run. Its id of a retry is none: each request is a new turn.
type chatBody struct {
	AgentID        string          `json:"agent_id"`
	ConversationID string          `json:"conversation_id"`
	Message        string          `json:"message"`
	Protocol       string          `json:"protocol,omitempty"`
	Files          []chatFile      `json:"files,omitempty"`
	ClientContext  json.RawMessage `json:"client_context,omitempty"`
}

type chatFile struct {
	fileBody

	URI string `json:"uri,omitempty"`
}

func (b chatBody) request() (runs.StartRequest, error) {
	files := make([]fileBody, len(b.Files))
	for i, f := range b.Files {
		if f.URI != "" {
			// Whoever fetched it would be asked for addresses of the caller's choosing.
			return runs.StartRequest{}, fault.New(fault.InvalidRequest, "api.chat", fault.Detail("files.uri: nothing is fetched; send the file itself as data"))
		}
		files[i] = f.fileBody
	}
	return startBody{
		AgentID: b.AgentID, ConversationID: b.ConversationID, Message: b.Message, Files: files, ClientContext: b.ClientContext,
	}.request()
}

// chatProtocol is how a chat is streamed; clients that say nothing read custom.
func chatProtocol(p string) (string, error) {
	switch p {
	case "", protocolCustom:
		return protocolCustom, nil
	case protocolAGUI:
		return protocolAGUI, nil
	default:
		return "", fault.New(fault.InvalidRequest, "api.chat", fault.Detail("protocol: custom or agui"))
	}
}

// chatStart serves POST /api/v1/chat/stream/start.
func (a *API) chatStart(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	var b chatBody
	if err := decode(w, r, &b); err != nil {
		return err
	}
	protocol, err := chatProtocol(b.Protocol)
	if err != nil {
		return err
	}
	started, err := a.chatRun(r, caller, b)
	if err != nil {
		return err
	}
	return a.streamChat(w, r, caller, started, b.ConversationID, protocol)
}

func (a *API) chatRun(r *http.Request, caller runs.Caller, b chatBody) (runs.Started, error) {
	req, err := b.request()
	if err != nil {
		return runs.Started{}, err
	}
	if err := a.mayInvoke(r, caller, req.AgentID); err != nil {
		return runs.Started{}, err
	}
	return a.cfg.Runs.Start(r.Context(), caller, req)
}

func (a *API) streamChat(w http.ResponseWriter, r *http.Request, caller runs.Caller, started runs.Started, conversation, protocol string) error {
	return a.streamOwn(w, r, caller, started.RunID, started.New, func(ctx context.Context, out *sse) stream {
		if protocol == protocolCustom {
			return a.customStream(ctx, caller, started.RunID, started.Carried, out, 0)
		}
		enc := agui.NewEncoder(conversation, started.RunID, agui.Resumes(started.AskedBy, started.Carried))
		return a.aguiStream(ctx, caller, started.RunID, out, enc, 0)
	})
}

// chatResumeBody is a decision on what a conversation waits for.
type chatResumeBody struct {
	AgentID        string `json:"agent_id"`
	ConversationID string `json:"conversation_id"`
	Protocol       string `json:"protocol,omitempty"`
	resumeBody
}

// chatResume serves POST /api/v1/chat/stream/resume. The same decision again
// streams the same run, as a reader.
func (a *API) chatResume(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	var b chatResumeBody
	if err := decode(w, r, &b); err != nil {
		return err
	}
	protocol, err := chatProtocol(b.Protocol)
	if err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	if err := a.mayAsk(r, caller, b.AgentID, b.ConversationID); err != nil {
		return err
	}
	asked, err := a.cfg.Runs.Interrupt(r.Context(), caller, b.AgentID, b.ConversationID, b.InterruptID)
	if err != nil {
		return err
	}
	started, err := a.cfg.Runs.Resume(r.Context(), caller, runs.ResumeRequest{
		RunID: asked.RunID, InterruptID: b.InterruptID, Revision: b.Revision, Decision: b.decision(),
	})
	if err != nil {
		return err
	}
	return a.streamChat(w, r, caller, started, b.ConversationID, protocol)
}

// chatCancel serves POST /api/v1/chat/stream/cancel: it cancels what is under way
// in the conversation, which may be nothing.
func (a *API) chatCancel(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	var b struct {
		AgentID        string `json:"agent_id"`
		ConversationID string `json:"conversation_id"`
	}
	if err := decode(w, r, &b); err != nil {
		return err
	}
	if err := a.mayAsk(r, caller, b.AgentID, b.ConversationID); err != nil {
		return err
	}
	id, err := a.cfg.Runs.ActiveRun(r.Context(), caller, b.AgentID, b.ConversationID)
	if err != nil {
		return err
	}
	if id == "" {
		return writeJSON(w, http.StatusOK, cancelledBody{Confirmed: true, SideEffects: string(event.SideEffectsNone)})
	}
	c, err := a.cfg.Runs.Cancel(r.Context(), caller, id, event.CancelledByClient)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, cancelledBody{c.Cancelled, c.RunID, c.Confirmed, c.SideEffectStatus})
}

// mayAsk is asked before a conversation is looked for.
func (a *API) mayAsk(r *http.Request, caller runs.Caller, agentID, conversationID string) error {
	switch {
	case !event.ValidID(agentID):
		return fault.New(fault.InvalidRequest, "api.chat", fault.Detail("agent_id: required, "+idRule))
	case !event.ValidID(conversationID):
		return fault.New(fault.InvalidRequest, "api.chat", fault.Detail("conversation_id: required, "+idRule))
	default:
		return a.mayInvoke(r, caller, agentID)
	}
}
