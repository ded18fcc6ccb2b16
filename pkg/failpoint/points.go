package failpoint

import "syscall"

// Point is a place in the code.
type Point uint8

// The points of a turn, in the order in which a turn comes to those of a program.
const (
	// RunCommitted: the run is committed, and nobody drives it yet.
	RunCommitted Point = iota
	// SandboxBound: the worker is bound, and the record does not say so.
	SandboxBound
	// EventsReceived: events of the worker are not in the log yet.
	EventsReceived
	// EventsCommitted: they are, and no reader knows.
	EventsCommitted
	// EndDecided: how the run ends is committed, and its terminal is not.
	EndDecided
	// TerminalCommitted: the terminal is committed, and the run stands under ending.
	TerminalCommitted
	// RunDocumented: the run has its document, and still stands under ending.
	RunDocumented

	// HeadRead: the head is read, and nothing of it sent.
	HeadRead
	// SnapshotAnnounced: nothing of the snapshot is written.
	SnapshotAnnounced
	// BlobReceived: the large payload has arrived, and is not visible under its key.
	BlobReceived
	// SnapshotStaged: the snapshot is written, and not confirmed.
	SnapshotStaged
	// SnapshotConfirmed: the snapshot is pending, and its writer does not know.
	SnapshotConfirmed
	// HeadAsked: the head is asked for, and not moved.
	HeadAsked
	// HeadMoved: head and end are committed, and the worker does not know.
	HeadMoved

	// WorkerBuilt: the worker is about to be bound.
	WorkerBuilt
	// WorkerStarted: the run has begun, without an event.
	WorkerStarted
	// WorkerSnapshot: the turn is done, and its state is not written.
	WorkerSnapshot
	// WorkerHead: the snapshot is pending, and its head is not asked for.
	WorkerHead
	// WorkerTerminal: the worker knows that its head is committed, and has not said
	// that the run is over.
	WorkerTerminal

	points
)

// firstSignal is that of the first point. Those before it belong to C libraries,
// and the last one of Linux is 64. A Go program that has no use for one ignores it.
const firstSignal = 36

// place is where a point stands.
type place struct{ program, name string }

func places() [points]place {
	const controlPlane, stateFacade, worker = "controlplane", "statefacade", "worker"
	return [points]place{
		RunCommitted:      {controlPlane, "run-committed"},
		SandboxBound:      {controlPlane, "sandbox-bound"},
		EventsReceived:    {controlPlane, "events-received"},
		EventsCommitted:   {controlPlane, "events-committed"},
		EndDecided:        {controlPlane, "end-decided"},
		TerminalCommitted: {controlPlane, "terminal-committed"},
		RunDocumented:     {controlPlane, "run-documented"},
		HeadRead:          {stateFacade, "head-read"},
		SnapshotAnnounced: {stateFacade, "snapshot-announced"},
		BlobReceived:      {stateFacade, "blob-received"},
		SnapshotStaged:    {stateFacade, "snapshot-staged"},
		SnapshotConfirmed: {stateFacade, "snapshot-confirmed"},
		HeadAsked:         {stateFacade, "head-asked"},
		HeadMoved:         {stateFacade, "head-moved"},
		WorkerBuilt:       {worker, "built"},
		WorkerStarted:     {worker, "started"},
		WorkerSnapshot:    {worker, "before-snapshot"},
		WorkerHead:        {worker, "before-head"},
		WorkerTerminal:    {worker, "before-terminal"},
	}
}

// All gives every point.
func All() []Point {
	all := make([]Point, points)
	for i := range all {
		all[i] = Point(i)
	}
	return all
}

// Program is the one that is killed at the point.
func (p Point) Program() string { return places()[p].program }

// String names it as PROGRAM/POINT.
func (p Point) String() string { return places()[p].program + "/" + places()[p].name }

// Signal arms the point in a program that was built for it.
func (p Point) Signal() syscall.Signal { return syscall.Signal(firstSignal + int(p)) }
