// Package call is the use case of ToolBroker: a worker asks for a tool, and the
// tool is called at most once or not at all.
//
// What a request may do follows from three things that the worker cannot choose:
// the capability's exact list of tools, the committed record's subject and agent,
// and what OpenFGA says of them at this moment. What happens follows from the
// ledger (the contract's fencing file, write 4).
package call
