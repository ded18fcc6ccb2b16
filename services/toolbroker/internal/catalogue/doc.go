// Package catalogue has the tools that the operator allows: which servers there
// are, which of their tools may be used, and under which name each is offered to
// a model.
//
// Each server is run and watched by itself. One that does not start, ends or
// lists something malformed takes its own tools out and no others, and comes back
// by itself. A tool that the operator did not name does not exist, whatever its
// server says.
package catalogue
