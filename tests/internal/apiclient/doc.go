// Package apiclient is a client of the public API of the control plane, as an
// independent program would write one from the documentation: it shares no code
// with the server. Everything that it reads is bounded.
package apiclient
