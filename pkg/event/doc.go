// Package event has the canonical lifecycle events, version 1: their types, the
// JSON codec with the published shapes, their bounds, and the Machine that
// judges a run.
//
// A harness emits a Draft. Whoever owns the stream stamps it with the next
// sequence (Machine.Stamp) and lets the Machine judge it (Machine.Accept): the
// worker before it sends, the control plane again before it commits. What both
// accept is one run that every encoder can rely on.
//
// Where the contract leaves room, this package decides as follows.
//
//   - The namespace of namespace.entered and namespace.exited is the path that
//     is entered or exited, not its parent. Its last element is any id that is
//     not open at the time, so that one agent can run twice side by side. The
//     parent has to be open, and so has the delegating tool call, in the parent.
//   - Whatever was opened in a namespace goes on and ends in that namespace, and
//     ends before the namespace does. A tool call ends after the namespaces that
//     it delegated to. The events of the run itself stand in the root.
//   - A run that ends by run.interrupted is as closed as one that finishes, but
//     for the tool calls that wait: those that the interrupt names, and those
//     whose namespace was exited as interrupted. Machine.Pending lists them; the
//     resumed run starts with them.
//   - run.error and run.cancelled may also follow interrupt.requested: a commit
//     can fail and a cancel can win.
//   - A tool.error may end a call whose streamed arguments never became an
//     object; a tool.finished may not.
//   - Keys that differ only in case are refused in arguments, details and
//     metadata, and pass in a tool's result, on which nothing is decided.
//   - The last places of the event and byte budget of a run are kept for the
//     events that close it: a run can always be ended within its bounds.
//   - In JSON, null stands for an optional field that is absent. thread_state is
//     absent until the control plane fills it from the committed head.
package event
