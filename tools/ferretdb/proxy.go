package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Of the MongoDB wire protocol.
const (
	opMsg           = 2013
	headerBytes     = 16
	flagBytes       = 4
	maxMessageBytes = 48_000_000
	flagMoreToCome  = 1 << 1
	sectionBody     = 0
	sectionSequence = 1
	lengthBytes     = 4
)

// proxy passes messages on, write commands one at a time.
type proxy struct {
	dial func(ctx context.Context) (net.Conn, error)
	// writer is held from the request of a write to its answer.
	writer sync.Mutex
}

// serve takes connections until ctx ends, and waits for them.
func (p *proxy) serve(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		wg.Go(func() { p.conn(ctx, c) })
	}
}

// conn passes on the messages of one client. An error ends its connection, as a
// server that is gone would.
func (p *proxy) conn(ctx context.Context, client net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := p.dial(ctx)
	if err != nil {
		_ = client.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	defer func() { _ = client.Close() }()
	defer func() { _ = server.Close() }()
	var request, answer []byte
	for {
		if request, err = readMessage(client, request); err != nil {
			return
		}
		if answer, err = p.exchange(server, request, answer); err != nil {
			return
		}
		if _, silent := command(request); silent {
			continue // the client expects no answer
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

// exchange gives the answer to one message. FerretDB answers each, also one that
// the client wants no answer to.
func (p *proxy) exchange(server net.Conn, request, answer []byte) ([]byte, error) {
	withoutTime(request)
	if name, _ := command(request); isWrite(name) {
		p.writer.Lock()
		defer p.writer.Unlock()
		var err error
		if request, answer, err = narrowed(server, request, answer); err != nil {
			return answer, err
		}
	}
	if _, err := server.Write(request); err != nil {
		return answer, err
	}
	return readMessage(server, answer)
}

func isWrite(command string) bool {
	switch strings.ToLower(command) {
	case "insert", "update", "delete", "findandmodify", "bulkwrite", "create", "createindexes", "drop", "dropindexes",
		"dropdatabase", "renamecollection", "collmod":
		return true
	default:
		return false
	}
}

// readMessage reads one message into buf, which it may replace.
func readMessage(r io.Reader, buf []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return buf, err
	}
	n := int(binary.LittleEndian.Uint32(length[:]))
	if n < headerBytes || n > maxMessageBytes {
		return buf, errors.New("a message of an impossible length")
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	copy(buf, length[:])
	_, err := io.ReadFull(r, buf[len(length):])
	return buf, err
}

// withoutTime takes the server's own limit out of a command: a read that FerretDB
// gives up leaves its snapshot on the connection to the file, and whoever gets that
// next reads what was long ago. A name of the same length that FerretDB ignores
// stands in its place.
func withoutTime(message []byte) {
	elements, err := bsoncore.Document(body(message)).Elements()
	if err != nil {
		return // FerretDB says what is wrong with it
	}
	for _, e := range elements {
		if e.Key() == "maxTimeMS" {
			copy(e[1:], "apiStrict")
		}
	}
}

// command is the name of the command in a message, which is the first key of its
// body, and whether its sender wants no answer.
func command(message []byte) (name string, silent bool) {
	b := body(message)
	if len(b) < 6 {
		return "", isMessage(message) && flags(message)&flagMoreToCome != 0
	}
	first, _, _ := bytes.Cut(b[5:], []byte{0})
	return string(first), flags(message)&flagMoreToCome != 0
}

func isMessage(message []byte) bool {
	return len(message) >= headerBytes+flagBytes && binary.LittleEndian.Uint32(message[12:]) == opMsg
}

func flags(message []byte) uint32 { return binary.LittleEndian.Uint32(message[headerBytes:]) }

// body is the document with the command of a message, or nothing.
func body(message []byte) []byte {
	if !isMessage(message) {
		return nil
	}
	// A section is its kind and a document or a sequence, each of which begins with
	// its length.
	for s := message[headerBytes+flagBytes:]; len(s) >= 7; {
		n := int(binary.LittleEndian.Uint32(s[1:]))
		if n < 4 || 1+n > len(s) {
			break
		}
		if s[0] == sectionBody {
			return s[1 : 1+n]
		}
		s = s[1+n:]
	}
	return nil
}
