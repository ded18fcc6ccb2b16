// Package e2e runs the whole of Cofferdam as its users do: the real programs,
// started by `cofferdam up`, reached over real HTTP with real tokens.
//
// Most tests share one stack, each in conversations of its own. Those that take
// a part of the stack down run one after the other and see that it works again.
package e2e
