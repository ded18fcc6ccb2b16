// Package agui speaks AG-UI 1.0 to the clients of the control plane: it reads
// their RunAgentInput and encodes canonical events (the contract's canonical
// events file, "Public encodings") as AG-UI events.
//
// The encoder never relies on what a client checks. It judges every canonical
// event by the lifecycle machine, so that a stream that it encodes has one
// RUN_STARTED, one terminal, no id that opens twice, one result for each tool
// call that ended, and nothing open at the end.
//
// Where the contract leaves room, this package decides as follows.
//
//   - A canonical id is unique in its run, and texts may share ids with
//     reasoning; an AG-UI client keeps all messages of a conversation under one
//     set of ids, and goes on writing a message of an earlier turn when its id
//     comes again. So an AG-UI id is the canonical run id, the kind and the
//     canonical id, joined by slashes. The canonical id alone stands in the
//     metadata of what opens.
//   - Streamed tool arguments pass as they come for as long as they are the
//     beginning of one JSON object. What never became one, which only a call
//     that ends in an error can leave, is completed, so that a client never
//     holds arguments that are not JSON.
//   - A tool's result is the string that it gave, or its JSON text. A tool.error
//     is a result as well, since every call wants one: "Error", its code and its
//     message, and the three of them in metadata.error.
//   - The snapshots before an interrupt replace what a client has, so they
//     restate its own state and messages (see Echo) and then the messages of the
//     run.
package agui
