package rpc

import (
	"encoding/json"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

func turnOf(req *workerv1.StartRunRequest, env fence.Envelope) (harness.Turn, error) {
	in := req.GetInput()
	t := harness.Turn{
		RunID: env.RunID, ConversationID: in.GetConversationId(), Message: in.GetMessage(),
		ClientContext: in.GetClientContext(), Deadline: env.Deadline,
	}
	t.Uploads = uploadsOf(in.GetUploads())
	for _, f := range in.GetFiles() {
		t.Files = append(t.Files, harness.File{Handle: f.GetHandle(), DisplayName: f.GetDisplayName(), MIMEType: f.GetMimeType(), Size: f.GetSize()})
	}
	return t, object("input.client_context", t.ClientContext)
}

func uploadsOf(in []*workerv1.UploadHandle) []harness.Upload {
	var out []harness.Upload
	for _, u := range in {
		out = append(out, harness.Upload{Handle: u.GetHandle(), MaxBytes: u.GetMaxBytes()})
	}
	return out
}

// decisionOf takes a decision and the interrupt that it answers, which has to be
// the one that the request names. Whether the two fit is the session's question.
func decisionOf(req *workerv1.ResumeRunRequest, env fence.Envelope) (harness.Decision, error) {
	const op = "rpc.resume"
	asked, err := event.DecodeInterrupt(req.GetInterrupt(), event.Bounds{})
	if err != nil {
		return harness.Decision{}, fault.Wrap(err, fault.InvalidRequest, op, fault.Detail("interrupt: not the payload of interrupt.requested"))
	}
	if asked.InterruptID != req.GetInterruptId() {
		return harness.Decision{}, fault.New(fault.InvalidRequest, op, fault.Detail("interrupt_id: not that of the interrupt"))
	}
	d := harness.Decision{
		RunID: env.RunID, ConversationID: req.GetConversationId(), Interrupt: asked, Revision: req.GetInterruptRevision(),
		Form: req.GetDecision().GetForm(), Dismissed: req.GetDecision().GetDismiss(), Carried: req.GetCarriedCalls(),
		Uploads: uploadsOf(req.GetUploads()), Deadline: env.Deadline,
	}
	for _, t := range req.GetDecision().GetTools() {
		d.Tools = append(d.Tools, harness.ToolDecision{ToolCallID: t.GetToolCallId(), Decision: event.Decision(t.GetDecision()), Arguments: t.GetArguments()})
	}
	return d, nil
}

// object checks JSON that travels as text: one strict object, or nothing.
func object(field string, raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if err := strictjson.Check(raw, strictjson.Options{}); err != nil || !opens(raw, '{') {
		return fault.Wrap(err, fault.InvalidRequest, "rpc.object", fault.Detail(field+": one JSON object"))
	}
	return nil
}
