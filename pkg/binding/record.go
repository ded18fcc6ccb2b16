// Package binding has the committed record of a binding and the writes that
// decide: the contract's fencing file, "The record" and "The writes".
//
// One document per binding holds epoch, generation, lease, run, event head,
// admitted effects, thread head and interrupt. Each of the ten writes is a pure
// function of that document; a back end only has to change one document
// atomically and to insert a row once. Nothing here rests on a read alone.
package binding

import (
	"encoding/json"
	"time"
)

// Bounds of the record.
const (
	// MaxTailBytes is how much of the event log stands in the record; the contract
	// allows 64 KiB. Each batch writes the record anew, so a quarter of that costs
	// less than half the time. A single batch that is larger may stand there alone.
	MaxTailBytes = 16 << 10
	// MaxBatchBytes and MaxBatchEvents bound what one write appends.
	MaxBatchBytes  = 512 << 10
	MaxBatchEvents = 1024
	// MaxAdmitted is how many effects of a run may be open at once.
	MaxAdmitted = 64
	// MaxAdmissions is how many effects a run may have in all. It bounds what
	// concluding the run has to read, whatever its worker did.
	MaxAdmissions = 4096
	// MaxOutcomeBytes is how large the stored outcome of an effect may be.
	MaxOutcomeBytes = 128 << 10
	// MaxEnding is how many runs and leases may wait to be concluded; a record
	// that has more is not given another lease.
	MaxEnding = 64
	// DispatchWindow is how long after its ledger row an effect may still begin.
	DispatchWindow = 2 * time.Second
)

// Identity is who a binding belongs to. It never leaves the control plane and
// the brokers; the binding's id reveals nothing of it.
type Identity struct {
	Environment     string `json:"environment"`
	Subject         string `json:"subject"`
	Organization    string `json:"organization"`
	AgentID         string `json:"agent_id"`
	AgentVersion    uint32 `json:"agent_version"`
	ConversationID  string `json:"conversation_id"`
	HarnessID       string `json:"harness_id"`
	AdapterVersion  string `json:"adapter_version"`
	ContractVersion uint32 `json:"contract_version"`
}

// Record is the committed record of one binding.
type Record struct {
	ID         string     `json:"id"`
	Identity   Identity   `json:"identity"`
	Epoch      uint32     `json:"epoch"`
	Generation uint32     `json:"generation"`
	Lease      *Lease     `json:"lease,omitempty"`
	Run        *Run       `json:"run,omitempty"`
	Ending     []Ending   `json:"ending,omitempty"`
	Head       Head       `json:"head"`
	Interrupt  *Interrupt `json:"interrupt,omitempty"`
	// Resumed keeps the last consumed interrupt, so that the same decision again
	// is answered with the same run.
	Resumed *Resumed `json:"resumed,omitempty"`
	// Revision rises at boundaries only: start, end, replace, clear, resume,
	// agent change.
	Revision uint64 `json:"revision"`
	// UpdatedAt is a hint of how long nothing has happened. No write is decided by it.
	UpdatedAt time.Time `json:"updated_at"`
}

// LeaseState says where a lease is in its life.
type LeaseState string

// The states of a lease that this version uses.
const (
	// LeaseClaiming has a generation and a claim name; no instance is known yet.
	LeaseClaiming LeaseState = "claiming"
	// LeaseReady has a worker that said ready.
	LeaseReady LeaseState = "ready"
	// LeaseBound has a worker that accepted bind.
	LeaseBound LeaseState = "bound"
	// LeaseHibernated has a generation and a claim name, as in claiming, and nobody
	// claims: the sandbox was given back, and the start of the next run moves the lease
	// to claiming.
	LeaseHibernated LeaseState = "hibernated"
)

// Lease is one sandbox, for one generation.
type Lease struct {
	// ClaimName is a digest of binding and generation: a repeated create is harmless.
	ClaimName string `json:"claim_name"`
	ClaimUID  string `json:"claim_uid,omitempty"`
	// SandboxUID is of what stands between the claim and the instance, on Kubernetes.
	SandboxUID string `json:"sandbox_uid,omitempty"`
	// InstanceUID is the pod UID, or random per process.
	InstanceUID string `json:"instance_uid,omitempty"`
	BootNonce   string `json:"boot_nonce,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	// BoundBy is the id of the capability that bound the worker: every frame of
	// events repeats it.
	BoundBy string `json:"bound_by,omitempty"`
	// ToolsDigest is of the tools that the worker was bound with: a worker learns
	// of tools by bind alone.
	ToolsDigest string     `json:"tools_digest,omitempty"`
	Profile     string     `json:"profile,omitempty"`
	State       LeaseState `json:"state"`
	ExpiresAt   time.Time  `json:"expires_at,omitzero"`
}

// Run is the active run.
type Run struct {
	ID        string `json:"id"`
	RequestID string `json:"request_id"`
	// KeyDigest and ContentDigest tell the same request from another one under
	// the same key.
	KeyDigest     string    `json:"key_digest"`
	ContentDigest string    `json:"content_digest"`
	StartedAt     time.Time `json:"started_at"`
	Deadline      time.Time `json:"deadline"`
	// Nonce of the start that set this run: it tells a start whose reply was lost
	// from another start of the same run by the same replica.
	Nonce string `json:"nonce"`
	// AskedBy is the run whose interrupt this one resumes, and Carried are the tool
	// calls that count as started because of it.
	AskedBy string    `json:"asked_by,omitempty"`
	Carried []Carried `json:"carried,omitempty"`
	// DelegatedBy is the call of another run on whose behalf this one works; nil for
	// a run that a caller started.
	DelegatedBy *Delegation `json:"delegated_by,omitempty"`
	// Owner is the replica and its incarnation; OwnerBeat counts its beats.
	Owner     string `json:"owner"`
	OwnerBeat uint64 `json:"owner_beat"`
	// AwaitsStream says that the run ends with its first stream: whoever takes that
	// cancels the run by going away. StreamNonce is whose it is, empty before.
	AwaitsStream bool   `json:"awaits_stream,omitempty"`
	StreamNonce  string `json:"stream_nonce,omitempty"`
	// EventHead is the number of committed events: the next sequence.
	EventHead uint64 `json:"event_head"`
	// LogBytes is the size of the committed events; less in a record of an earlier
	// version. No write is decided by it.
	LogBytes uint64 `json:"log_bytes,omitempty"`
	// Tail is the end of the log; what went before stands in chunks.
	Tail []Batch `json:"tail,omitempty"`
	// Admitted are the effects that may be under way.
	Admitted []string `json:"admitted,omitempty"`
	// Admissions counts all that ever were; it only rises.
	Admissions uint64 `json:"admissions"`
	End        End    `json:"end,omitzero"`
}

// Carried is a tool call that a resumed run has not to start. Decision is empty
// for one that nobody was asked about: it delegates to what was interrupted.
type Carried struct {
	ToolCallID string `json:"tool_call_id"`
	Decision   string `json:"decision,omitempty"`
	// ArgsDigest is the ToolCallDigest of the call that was approved, with the
	// arguments as they were edited: the grant is for that call alone.
	ArgsDigest string `json:"args_digest,omitempty"`
}

// Delegation names an admitted effect of a run, which lets another agent work.
type Delegation struct {
	BindingID string `json:"binding_id"`
	Epoch     uint32 `json:"epoch"`
	RunID     string `json:"run_id"`
	// Key of the effect, which is the id of the tool call.
	Key string `json:"key"`
	// Agents are all on whose behalf the run works: first the one that a caller
	// talks to, last the one that called.
	Agents []string `json:"agents"`
}

// Batch is what one write appended to the log.
type Batch struct {
	// Nonce tells whose batch this is; the number alone proves nothing.
	Nonce string `json:"nonce"`
	// First is the sequence of the first event.
	First uint64 `json:"first"`
	// Events are canonical events as JSON.
	Events []json.RawMessage `json:"events"`
}

// Next is the sequence after the last event of the batch.
func (b Batch) Next() uint64 { return b.First + uint64(len(b.Events)) }

// Bytes is the size of the batch's events.
func (b Batch) Bytes() int {
	n := 0
	for _, e := range b.Events {
		n += len(e)
	}
	return n
}

// EndKind is how a run ends. It is set once.
type EndKind string

// The ways in which a run ends.
const (
	EndOpen        EndKind = ""
	EndCancelling  EndKind = "cancelling"
	EndSuccess     EndKind = "success"
	EndInterrupted EndKind = "interrupted"
	EndError       EndKind = "error"
	EndLost        EndKind = "lost"
)

// End is the decision on how a run ends.
type End struct {
	Kind EndKind `json:"kind,omitempty"`
	// Reason of a cancel (client_request, disconnect, deadline, shutdown), or
	// the code of an error.
	Reason string `json:"reason,omitempty"`
	// RetryAfterSeconds is how long to wait before another try of a run that failed,
	// at most MaxRetryAfterSeconds; 0 is unknown, and what it is for every other end.
	RetryAfterSeconds uint32 `json:"retry_after_seconds,omitempty"`
}

// MaxRetryAfterSeconds is the longest wait that an end may name: a day.
const MaxRetryAfterSeconds = 24 * 60 * 60

// Open reports whether nothing is decided yet.
func (e End) Open() bool { return e.Kind == EndOpen }

// Ending is a run or a lease that was taken out of service and has to be
// concluded, with all that is needed to do it. A record never holds more than
// one that has a run.
type Ending struct {
	// Epoch and Generation are those in which the run or lease was in service.
	Epoch      uint32 `json:"epoch"`
	Generation uint32 `json:"generation"`
	Run        *Run   `json:"run,omitempty"`
	// Terminal is set once the run's last event is its terminal.
	Terminal bool   `json:"terminal,omitempty"`
	Lease    *Lease `json:"lease,omitempty"`
}

// Head is the committed head of the thread state.
type Head struct {
	Revision          uint64 `json:"revision"`
	Codec             string `json:"codec,omitempty"`
	CodecVersion      uint32 `json:"codec_version,omitempty"`
	SnapshotRef       string `json:"snapshot_ref,omitempty"`
	SHA256            string `json:"sha256,omitempty"`
	RunID             string `json:"run_id,omitempty"`
	IdempotencyDigest string `json:"idempotency_digest,omitempty"`
}

// Interrupt is a pending interrupt; its body is a document of its own.
type Interrupt struct {
	ID       string `json:"id"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
	RunID    string `json:"run_id"`
	// At is when it was committed. It expires some time after that.
	At time.Time `json:"at,omitzero"`
}

// Resumed is a consumed interrupt.
type Resumed struct {
	InterruptID  string `json:"interrupt_id"`
	Revision     uint64 `json:"revision"`
	DecisionHash string `json:"decision_hash"`
	RunID        string `json:"run_id"`
	// InterruptHash is of what was asked, so that whoever asked can tell that it
	// was shown as it was asked.
	InterruptHash string `json:"interrupt_hash,omitempty"`
}
