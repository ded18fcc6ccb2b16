package mongodbstoretest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Fate is what becomes of a command on its way.
type Fate int

// The fates of a command.
const (
	// Deliver passes command and answer on.
	Deliver Fate = iota
	// LoseAnswer carries a command out and ends the connection.
	LoseAnswer
	// LoseInside carries a command out and answers that its outcome got lost on the
	// other side, as a router does. A driver repeats a write that it can.
	LoseInside
	// Hang neither passes a command on nor answers it.
	Hang
)

// Command is one on its way.
type Command struct {
	Name string
	Body bson.Raw
	// Retryable says that its driver numbered it, to repeat it under that number once.
	Retryable bool
}

// Wire gives the URI of a proxy before the server of uri, which lasts as long as the
// test. The proxy makes of the server what one of production is: the primary of a
// replica set, which remembers by number what it answered to a write, so that a
// repeated one is the first one. fate is asked for each command that is not the
// repetition of one, from several goroutines.
func Wire(tb testing.TB, uri string, fate func(Command) Fate) string {
	tb.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		tb.Fatal("the server's URI is none") // the error has the URI in it
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	w := &wire{server: u.Host, fate: fate, answers: map[string][]byte{}}
	var serving sync.WaitGroup
	serving.Go(func() { w.serve(ctx, l) })
	tb.Cleanup(func() {
		cancel()
		_ = l.Close()
		serving.Wait()
	})
	u.Host, u.RawQuery = l.Addr().String(), "directConnection=true"
	return u.String()
}

type wire struct {
	server string
	fate   func(Command) Fate

	mu sync.Mutex
	// answers to numbered writes, by session and number.
	answers map[string][]byte
}

func (w *wire) serve(ctx context.Context, l net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer func() { _ = client.Close() }()
			server, err := new(net.Dialer).DialContext(ctx, "tcp", w.server)
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
			_ = w.pass(client, server) // an error is the end of the connection
		})
	}
}

// pass answers one command after the other.
func (w *wire) pass(client, server net.Conn) error {
	for {
		request, err := message(client)
		if err != nil {
			return err
		}
		answer, err := w.answer(client, server, request)
		if err != nil {
			return err
		}
		copy(answer[8:12], request[4:8]) // which request it answers
		if _, err := client.Write(answer); err != nil {
			return err
		}
	}
}

func (w *wire) answer(client, server net.Conn, request []byte) ([]byte, error) {
	c, number := parse(request)
	if answer := w.remembered(number); answer != nil {
		return answer, nil
	}
	fate := w.fate(c)
	if fate == Hang {
		_, err := io.Copy(io.Discard, client) // until the client goes
		return nil, errors.Join(io.EOF, err)
	}
	answer, err := exchange(server, request)
	if err != nil {
		return nil, err
	}
	if number != "" {
		w.mu.Lock()
		w.answers[number] = answer
		w.mu.Unlock()
	}
	switch {
	case fate == LoseAnswer:
		return nil, io.EOF
	case fate == LoseInside:
		return encode(lost())
	case kindOf(answer) == opReply:
		return primary(answer, replyBytes)
	case c.Name == "hello" || c.Name == "isMaster" || c.Name == "ismaster":
		return primary(answer, headerBytes+flagBytes+1)
	}
	return answer, nil
}

// remembered is the answer to a numbered write, if it was given.
func (w *wire) remembered(number string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]byte(nil), w.answers[number]...)
}

// lost is what a router says of a write whose outcome it does not know.
func lost() bson.D {
	const networkTimeout = 89
	return bson.D{
		{Key: "ok", Value: 0.0},
		{Key: "code", Value: int32(networkTimeout)},
		{Key: "codeName", Value: "NetworkTimeout"},
		{Key: "errmsg", Value: "the answer of the shard was lost"},
		{Key: "errorLabels", Value: bson.A{"RetryableWriteError"}},
	}
}

// primary makes a greeting, whose document begins there, that of the primary of a
// replica set.
func primary(greeting []byte, begin int) ([]byte, error) {
	var d bson.D
	if err := bson.Unmarshal(greeting[min(begin, len(greeting)):], &d); err != nil {
		return nil, err
	}
	raw, err := bson.Marshal(append(d, bson.E{Key: "setName", Value: "test"}, bson.E{Key: "isWritablePrimary", Value: true}, bson.E{Key: "secondary", Value: false}))
	return sized(append(greeting[:begin:begin], raw...)), err
}

// parse reads a command, and the session and number of one that its driver numbered.
// The number is taken out of it: FerretDB ignores what it has then.
func parse(request []byte) (c Command, number string) {
	c.Body = body(request)
	first, err := c.Body.IndexErr(0)
	if err != nil {
		return c, ""
	}
	c.Name = first.Key()
	n, nerr := c.Body.LookupErr("txnNumber")
	session, serr := c.Body.LookupErr("lsid")
	if c.Retryable = nerr == nil && serr == nil; !c.Retryable {
		return c, ""
	}
	number = string(session.Value) + string(n.Value)
	c.Body = append(bson.Raw(nil), c.Body...)
	for _, e := range elements(body(request)) {
		if e.Key() == "txnNumber" {
			copy(e[1:], "apiStrict")
		}
	}
	return c, number
}

func elements(b bson.Raw) []bson.RawElement {
	all, err := b.Elements()
	if err != nil {
		return nil // the server says what is wrong with it
	}
	return all
}

func exchange(server net.Conn, request []byte) ([]byte, error) {
	if _, err := server.Write(request); err != nil {
		return nil, err
	}
	return message(server)
}

// Of the MongoDB wire protocol: a message is a header of four numbers, the last of
// which is its kind, and for this kind flags and sections, each of which is its kind
// and a document or a sequence. Both begin with their length.
const (
	headerBytes  = 16
	flagBytes    = 4
	opReply      = 1 // to the first command of a connection
	replyBytes   = headerBytes + 20
	opMsg        = 2013
	messageBytes = 48_000_000
)

func message(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n < headerBytes || n > messageBytes {
		return nil, errors.New("a message of an impossible length")
	}
	m := make([]byte, n)
	copy(m, length[:])
	_, err := io.ReadFull(r, m[len(length):])
	return m, err
}

// body is the document with the command, or the answer, of a message; nil where there
// is none.
func body(m []byte) bson.Raw {
	if kindOf(m) != opMsg || len(m) < headerBytes+flagBytes {
		return nil
	}
	for s := m[headerBytes+flagBytes:]; len(s) > 5; {
		n := int(binary.LittleEndian.Uint32(s[1:]))
		switch {
		case n < 5 || 1+n > len(s):
			return nil
		case s[0] == 0:
			return bson.Raw(s[1 : 1+n])
		}
		s = s[1+n:]
	}
	return nil
}

func kindOf(m []byte) uint32 { return binary.LittleEndian.Uint32(m[headerBytes-4:]) }

// encode makes a message of an answer.
func encode(answer bson.D) ([]byte, error) {
	raw, err := bson.Marshal(answer)
	m := append(make([]byte, headerBytes+flagBytes+1), raw...)
	binary.LittleEndian.PutUint32(m[headerBytes-4:], opMsg)
	return sized(m), err
}

// sized writes its length into a message.
func sized(m []byte) []byte {
	binary.LittleEndian.PutUint32(m, uint32(min(len(m), messageBytes)))
	return m
}

// Lossy gives the URI of a new database of the server on the way to which the answer
// of every third write that its driver can repeat gets lost. A server that the
// environment names is spared that.
func Lossy(tb testing.TB, server string) string {
	tb.Helper()
	uri := URI(tb, server)
	if External() {
		return uri
	}
	var writes atomic.Int64
	return Wire(tb, uri, func(c Command) Fate {
		if c.Retryable && writes.Add(1)%3 == 0 {
			return LoseInside
		}
		return Deliver
	})
}
