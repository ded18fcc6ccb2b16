package fault

import "net/http"

// Code is one of the codes of the Harness Adapter v1 contract, section "Every
// code". An HTTP status and a retry flag belong to the code, not to its
// category.
type Code string

// The codes of the contract.
const (
	InvalidRequest            Code = "invalid_request"
	ToolArgumentsInvalid      Code = "tool_arguments_invalid"
	HandleInvalid             Code = "handle_invalid"
	RequestTooLarge           Code = "request_too_large"
	StateTooLarge             Code = "state_too_large"
	ProtocolUnsupported       Code = "protocol_unsupported"
	WorkerMismatch            Code = "worker_mismatch"
	HarnessOptionsInvalid     Code = "harness_options_invalid"
	Unauthenticated           Code = "unauthenticated"
	CapabilityMissing         Code = "capability_missing"
	CapabilityExpired         Code = "capability_expired"
	CapabilityInvalid         Code = "capability_invalid"
	AudienceMismatch          Code = "audience_mismatch"
	CallerNotAllowed          Code = "caller_not_allowed"
	CapabilityScope           Code = "capability_scope"
	ToolNotAllowed            Code = "tool_not_allowed"
	ToolDenied                Code = "tool_denied"
	MemoryScopeDenied         Code = "memory_scope_denied"
	HandleDenied              Code = "handle_denied"
	AccessDenied              Code = "access_denied"
	StaleLease                Code = "stale_lease"
	BindingConflict           Code = "binding_conflict"
	AlreadyRunning            Code = "already_running"
	InterruptConflict         Code = "interrupt_conflict"
	RevisionConflict          Code = "revision_conflict"
	MemoryRevisionConflict    Code = "memory_revision_conflict"
	IdempotencyConflict       Code = "idempotency_conflict"
	ApprovalRequired          Code = "approval_required"
	NotFound                  Code = "not_found"
	InterruptNotFound         Code = "interrupt_not_found"
	HandleExpired             Code = "handle_expired"
	RateLimited               Code = "rate_limited"
	SandboxCapacity           Code = "sandbox_capacity"
	Capacity                  Code = "capacity"
	SandboxNotReady           Code = "sandbox_not_ready"
	DependencyUnavailable     Code = "dependency_unavailable"
	ToolUnavailable           Code = "tool_unavailable"
	ModelUnavailable          Code = "model_unavailable"
	SandboxEvicted            Code = "sandbox_evicted"
	ControlPlaneLost          Code = "control_plane_lost"
	SandboxLimit              Code = "sandbox_limit"
	DeadlineExceeded          Code = "deadline_exceeded"
	Protocol                  Code = "protocol"
	ModelFailed               Code = "model_failed"
	PersistenceFailed         Code = "persistence_failed"
	ThreadDurabilityUncertain Code = "thread_durability_uncertain"
	ToolOutcomeUnknown        Code = "tool_outcome_unknown"
	MemoryRejected            Code = "memory_rejected"
	Cancelled                 Code = "cancelled"
	NotImplemented            Code = "not_implemented"
	Internal                  Code = "internal"
)

// Category is one of the error categories of the contract.
type Category string

// The categories of the contract.
const (
	CategoryConfiguration  Category = "configuration"
	CategoryAuthentication Category = "authentication"
	CategoryAuthorization  Category = "authorization"
	CategoryCapacity       Category = "capacity"
	CategoryThrottled      Category = "throttled"
	CategoryUnavailable    Category = "unavailable"
	CategoryTimeout        Category = "timeout"
	CategoryProtocol       Category = "protocol"
	CategoryPersistence    Category = "persistence"
	CategoryCancelled      Category = "cancelled"
	CategoryConflict       Category = "conflict"
	CategoryNotFound       Category = "not_found"
	CategoryInternal       Category = "internal"
)

// statusClientClosedRequest is what the contract gives for cancelled; net/http
// has no name for it.
const statusClientClosedRequest = 499

type property struct {
	category  Category
	http      int
	connect   rpcCode
	retryable bool
	message   string
}

// properties is the contract's table, with the fixed sentence of each code. A
// sentence says what the caller can do next, and nothing about this system.
var properties = map[Code]property{
	InvalidRequest:            {CategoryProtocol, http.StatusBadRequest, codeInvalidArgument, false, "The request is not valid. Correct what the detail names and send it again."},
	ToolArgumentsInvalid:      {CategoryProtocol, http.StatusBadRequest, codeInvalidArgument, false, "The tool's arguments do not fit its schema. Correct them and call again."},
	HandleInvalid:             {CategoryProtocol, http.StatusBadRequest, codeInvalidArgument, false, "The file handle is not one that this service issued. Use a handle from the run's input."},
	RequestTooLarge:           {CategoryProtocol, http.StatusRequestEntityTooLarge, codeInvalidArgument, false, "The request is larger than its bound. Send less."},
	StateTooLarge:             {CategoryProtocol, http.StatusRequestEntityTooLarge, codeInvalidArgument, false, "The thread state is larger than its bound. Clear the conversation or raise the bound in the profile."},
	ProtocolUnsupported:       {CategoryConfiguration, http.StatusUnprocessableEntity, codeFailedPrecondition, false, "The protocol version is not supported. Use version 1."},
	WorkerMismatch:            {CategoryConfiguration, http.StatusUnprocessableEntity, codeFailedPrecondition, false, "The worker is not the one that the profile asks for. Check harness, adapter version and image digest."},
	HarnessOptionsInvalid:     {CategoryConfiguration, http.StatusUnprocessableEntity, codeFailedPrecondition, false, "The options of the harness do not fit its schema. Correct the agent."},
	Unauthenticated:           {CategoryAuthentication, http.StatusUnauthorized, codeUnauthenticated, false, "The caller has not proved who it is. Send a valid bearer token or certificate."},
	CapabilityMissing:         {CategoryAuthentication, http.StatusUnauthorized, codeUnauthenticated, false, "The request carries no capability. Send the one for this run and audience."},
	CapabilityExpired:         {CategoryAuthentication, http.StatusUnauthorized, codeUnauthenticated, false, "The capability has expired. The run's time is over; start a new run."},
	CapabilityInvalid:         {CategoryAuthentication, http.StatusUnauthorized, codeUnauthenticated, false, "The capability is not valid. Send the one that was minted for this run."},
	AudienceMismatch:          {CategoryAuthentication, http.StatusUnauthorized, codeUnauthenticated, false, "The capability was minted for another service. Send the one for this audience."},
	CallerNotAllowed:          {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "This workload may not call this service. Add its SPIFFE ID to the service's list if it should."},
	CapabilityScope:           {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "The capability does not cover this request. Use the binding, run and resources that it names."},
	ToolNotAllowed:            {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "The tool is not among those that this run may call. Choose a tool that was offered."},
	ToolDenied:                {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "The user may not call this tool. Ask an administrator for access."},
	MemoryScopeDenied:         {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "This memory scope may not be used in this way. Use the user scope."},
	HandleDenied:              {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "The file handle is not for this run or this direction. Use a handle from the run's input."},
	AccessDenied:              {CategoryAuthorization, http.StatusForbidden, codePermissionDenied, false, "The caller may not do this. Ask an administrator for access."},
	StaleLease:                {CategoryAuthorization, http.StatusConflict, codeAborted, false, "Binding, epoch, generation or run is not the current one. Stop: another lease has taken over."},
	BindingConflict:           {CategoryConflict, http.StatusConflict, codeAborted, false, "The worker is bound to something else for its lifetime. Use a fresh worker."},
	AlreadyRunning:            {CategoryConflict, http.StatusConflict, codeAborted, false, "A run is active. Wait for its end or cancel it."},
	InterruptConflict:         {CategoryConflict, http.StatusConflict, codeAborted, false, "The interrupt was answered differently before, or has another revision. Read the interrupt state again."},
	RevisionConflict:          {CategoryConflict, http.StatusConflict, codeAborted, false, "The revision has moved on. Read the current one and try again."},
	MemoryRevisionConflict:    {CategoryConflict, http.StatusConflict, codeAborted, false, "The memory record has another revision. Read it and try again."},
	IdempotencyConflict:       {CategoryConflict, http.StatusConflict, codeAborted, false, "The idempotency key was used with other content. Use a new key."},
	ApprovalRequired:          {CategoryAuthorization, http.StatusConflict, codeFailedPrecondition, false, "The tool needs an approval. Answer the pending interrupt."},
	NotFound:                  {CategoryNotFound, http.StatusNotFound, codeNotFound, false, "There is no such thing among what the caller may see. Check the id."},
	InterruptNotFound:         {CategoryNotFound, http.StatusNotFound, codeNotFound, false, "No such interrupt is pending. Read the interrupt state."},
	HandleExpired:             {CategoryNotFound, http.StatusNotFound, codeNotFound, false, "The file handle has expired. Handles live no longer than their run."},
	RateLimited:               {CategoryThrottled, http.StatusTooManyRequests, codeResourceExhausted, true, "Too many requests. Wait and try again."},
	SandboxCapacity:           {CategoryCapacity, http.StatusServiceUnavailable, codeResourceExhausted, true, "No sandbox is free. Wait and try again."},
	Capacity:                  {CategoryCapacity, http.StatusServiceUnavailable, codeResourceExhausted, true, "A limit of this installation is reached. Wait and try again."},
	SandboxNotReady:           {CategoryUnavailable, http.StatusServiceUnavailable, codeUnavailable, true, "The sandbox did not become ready. Try again."},
	DependencyUnavailable:     {CategoryUnavailable, http.StatusServiceUnavailable, codeUnavailable, true, "A service that this needs does not answer. Try again."},
	ToolUnavailable:           {CategoryUnavailable, http.StatusServiceUnavailable, codeUnavailable, true, "The tool's server does not answer. Try again."},
	ModelUnavailable:          {CategoryUnavailable, http.StatusServiceUnavailable, codeUnavailable, true, "The model endpoint does not answer. Try again."},
	SandboxEvicted:            {CategoryUnavailable, http.StatusServiceUnavailable, codeUnavailable, false, "The sandbox went away during the run. Check what the run did before you repeat it."},
	ControlPlaneLost:          {CategoryUnavailable, http.StatusServiceUnavailable, codeUnavailable, false, "The replica that drove the run went away. Check what the run did before you repeat it."},
	SandboxLimit:              {CategoryCapacity, http.StatusServiceUnavailable, codeResourceExhausted, false, "A limit of the sandbox ended the work. Ask for less, or raise the limit in the profile."},
	DeadlineExceeded:          {CategoryTimeout, http.StatusGatewayTimeout, codeDeadlineExceeded, false, "The deadline has passed. Start again with more time."},
	Protocol:                  {CategoryProtocol, http.StatusBadGateway, codeInternal, false, "The worker or harness broke the event lifecycle. Report the incident id to the operator."},
	ModelFailed:               {CategoryProtocol, http.StatusBadGateway, codeInternal, false, "The model's answer was an error or was cut off. Report the incident id if it goes on."},
	PersistenceFailed:         {CategoryPersistence, http.StatusServiceUnavailable, codeUnavailable, true, "State could not be saved or loaded. Try again."},
	ThreadDurabilityUncertain: {CategoryPersistence, http.StatusServiceUnavailable, codeUnavailable, false, "It is not known whether the turn was saved. The last saved state stands; read it before you go on."},
	ToolOutcomeUnknown:        {CategoryPersistence, http.StatusServiceUnavailable, codeUnavailable, false, "It is not known whether the tool's effect happened. Check before you repeat it."},
	MemoryRejected:            {CategoryAuthorization, http.StatusUnprocessableEntity, codeFailedPrecondition, false, "The memory's content was refused by policy. Change it and try again."},
	Cancelled:                 {CategoryCancelled, statusClientClosedRequest, codeCanceled, false, "The work was cancelled."},
	NotImplemented:            {CategoryConfiguration, http.StatusNotImplemented, codeUnimplemented, false, "This is part of the contract but not implemented yet. The documentation lists what is missing."},
	Internal:                  {CategoryInternal, http.StatusInternalServerError, codeInternal, false, "Something went wrong inside. Report the incident id to the operator."},
}

// Codes lists every code of the contract, in no particular order.
func Codes() []Code {
	out := make([]Code, 0, len(properties))
	for c := range properties {
		out = append(out, c)
	}
	return out
}

// Known reports whether c is a code of the contract.
func (c Code) Known() bool { _, ok := properties[c]; return ok }

// Category of the code; CategoryInternal for an unknown code.
func (c Code) Category() Category { return c.property().category }

// HTTPStatus of the code; 500 for an unknown code.
func (c Code) HTTPStatus() int { return c.property().http }

// Retryable says whether the same request may be sent again.
func (c Code) Retryable() bool { return c.property().retryable }

// Message is the fixed, safe sentence of the code.
func (c Code) Message() string { return c.property().message }

func (c Code) property() property {
	if p, ok := properties[c]; ok {
		return p
	}
	return properties[Internal]
}
