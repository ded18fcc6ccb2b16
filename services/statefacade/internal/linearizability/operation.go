package linearizability

import (
	"fmt"
	"math"
)

// kind of an operation.
type kind string

const (
	opReplace kind = "lease_replacement"
	opStart   kind = "run_start"
	opAppend  kind = "append"
	opAdmit   kind = "tool_admission"
	opCommit  kind = "head_commit"
	opPut     kind = "memory_write"
	opGet     kind = "memory_read"
)

// Operation is what a client asks for. Its ID is its own.
type Operation struct {
	ID   string `json:"id"`
	Kind kind   `json:"kind"`
	// Key is the binding, or the memory record.
	Key string `json:"key"`
	// Binding whose run writes to memory.
	Binding string `json:"binding,omitempty"`
	// Generation and Run are those of the grant.
	Generation uint32 `json:"generation,omitempty"`
	Run        string `json:"run,omitempty"`
	// Expected revision of the head or the record.
	Expected uint64 `json:"expected,omitempty"`
	// Effect is the key of an admission.
	Effect string `json:"effect,omitempty"`
}

// result is how an operation ended.
type result string

const (
	// done, as asked for.
	done result = "done"
	// stale: nothing of the grant stands any more.
	stale result = "stale"
	// conflict: another revision stands.
	conflict result = "conflict"
	// refused for another reason, with nothing done.
	refused result = "refused"
	// unknown: nobody knows.
	unknown result = "unknown"
)

// Outcome is what a client was told.
type Outcome struct {
	Result result `json:"result"`
	// Revision of the head or the record, or the generation.
	Revision uint64 `json:"revision,omitempty"`
	// Body that an effect has, or what a record holds: the ID of the operation that
	// made it.
	Body string `json:"body,omitempty"`
	// Lost says that an answer of the store was lost on the way, or that an earlier
	// try was not told its outcome, so that somebody had to repeat himself.
	Lost bool `json:"lost,omitempty"`
}

// never is later than everything.
const never = math.MaxInt64

// Entry is an operation of a history.
type Entry struct {
	Client  int
	Op      Operation
	Outcome Outcome
	// Call and Return are of the machine's monotonic clock, in nanoseconds.
	Call, Return int64
}

// String is for people.
func (e Entry) String() string {
	ret := fmt.Sprint(e.Return)
	if e.Return == never {
		ret = "never"
	}
	return fmt.Sprintf("[%d, %s] client %d: %s g%d run %s expected %d effect %s -> %s %d %s lost=%v",
		e.Call, ret, e.Client, e.Op.Kind, e.Op.Generation, e.Op.Run, e.Op.Expected, e.Op.Effect, e.Outcome.Result, e.Outcome.Revision, e.Outcome.Body, e.Outcome.Lost)
}
