// Package runnerproto is what the worker and the runner say to each other over a
// Unix socket. It is imported by both, and imports nothing that a program of a
// few megabytes could not carry.
//
// The worker dials. Each connection begins with an [Opening], answered by an
// [Opened]. The first connection is the control connection: [Request] frames go
// to the runner, [Reply] frames come back, each frame a length of 4 bytes
// (big-endian) and one JSON value. Bytes travel beside it, a connection for each
// stream, opened with the session that the control connection was given: input,
// output, the content of a file, an archive. There they go as chunks, so that an
// end that was meant ([ChunkWriter.Close]) cannot be taken for a peer that died.
//
// Flow control is the socket's: who does not read holds the writer back. The end
// of the control connection is the end of everything that was begun on it.
//
// The runner trusts the worker. Neither trusts what comes out of the program:
// its bytes are never looked into, and nothing of it stands in a frame.
package runnerproto

import "time"

// Version of this protocol. Worker and runner are built together and refuse one
// another when it differs.
const Version = 1

// Bounds of the wire, in bytes.
const (
	// MaxOpening bounds an Opening and an Opened.
	MaxOpening = 16 << 10
	// MaxRequest bounds a Request: arguments and environment of a program stand in
	// it, files never do.
	MaxRequest = 1 << 20
	// MaxReply bounds a Reply.
	MaxReply = 16 << 10
	// MaxChunk bounds one chunk of a stream.
	MaxChunk = 64 << 10
)

// Bounds of a session.
const (
	// MaxCalls is how many requests may be open at a time.
	MaxCalls = 64
	// MaxStreams is how many streams may wait for the request that uses them; the
	// oldest gives way.
	MaxStreams = 32
	// OpeningTimeout bounds the time from the connection to its Opening.
	OpeningTimeout = 5 * time.Second
	// WriteTimeout bounds the time that one frame may take to be taken in.
	WriteTimeout = 10 * time.Second
)

// Bounds of an archive. The runner makes none that it would not take back.
const (
	// MaxEntries bounds the files, folders and links of an archive, and what is
	// looked at to make it.
	MaxEntries = 1 << 16
	// MaxUnpacked bounds the content of all its files, in bytes.
	MaxUnpacked = 512 << 20
	// MaxDepth bounds the elements of a path.
	MaxDepth = 128
	// MaxPath bounds a path and the target of a link, in bytes.
	MaxPath = 4096
	// MaxPatterns bounds each of the two lists of patterns.
	MaxPatterns = 256
)

// MaxFile bounds a file that is written, in bytes. The size of the world's
// folders bounds it before.
const MaxFile = 1 << 30

// MaxGrace bounds the grace of a Kill.
const MaxGrace = 5 * time.Minute
