// Package agents hosts real agent programs from npm, each in a sandbox with all
// layers behind the real runner, and talks to them through the public API of a
// stack: control plane, worker, acp adapter, runner, agent. The agents ask the
// demo model through modelproxy, each on its own wire, and call tools through the
// ToolBroker.
//
// What is said of an agent in its entry of the table has been seen: a test fails
// when another version of it behaves differently.
package agents
