// Package runnerclient drives the runner of an agent program's world: it is the
// [hosted.World] of the worker, over the Unix socket that both share.
//
// Every call ends with its context. Once the runner is gone, each answers
// sandbox_evicted at once, and what was read from the program ends with it: a
// stream that broke off is never taken for one that ended.
package runnerclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// dialTimeout bounds how long a runner may take to listen.
const dialTimeout = 30 * time.Second

// World is a connection to a runner. It is safe for concurrent use.
type World struct {
	path    string
	session string
	about   runnerproto.World
	conn    net.Conn
	wg      sync.WaitGroup
	// writing is held while a frame is written.
	writing chan struct{}
	// starting is held from the request to start a program until it is known what
	// became of it.
	starting chan struct{}

	// alive ends when there is no runner any more.
	alive context.Context //nolint:containedctx // of the connection that this is
	end   context.CancelFunc

	mu      sync.Mutex
	ended   bool
	next    uint64
	pending map[uint64]chan<- *runnerproto.Reply
	streams map[net.Conn]struct{}
	program *program
}

var _ hosted.World = (*World)(nil)

// Dial connects to the runner that listens at an address, unix:// and an absolute
// path, and waits for it to come up: as long as ctx allows, and no more than 30
// seconds. It fails with sandbox_not_ready.
func Dial(ctx context.Context, address string) (*World, error) {
	const op = "runnerclient.Dial"
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return nil, fault.New(fault.SandboxNotReady, op, fault.Detail("the runner's address is not unix:// and a path"))
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, opened, err := dialUntil(ctx, path)
	if err != nil {
		return nil, notReady(err, op)
	}
	if opened.World == nil || opened.Session == "" {
		_ = conn.Close()
		return nil, fault.New(fault.SandboxNotReady, op, fault.Detail("the runner's answer is not understood"))
	}
	w := &World{
		path: path, session: opened.Session, about: *opened.World, conn: conn,
		writing: make(chan struct{}, 1), starting: make(chan struct{}, 1),
		pending: map[uint64]chan<- *runnerproto.Reply{}, streams: map[net.Conn]struct{}{},
	}
	w.alive, w.end = context.WithCancel(context.WithoutCancel(ctx)) // it outlives the call
	w.wg.Go(w.read)
	return w, nil
}

// retry is how often is looked for a runner that does not listen yet.
const retry = 10 * time.Millisecond

func dialUntil(ctx context.Context, path string) (net.Conn, *runnerproto.Opened, error) {
	for {
		conn, opened, err := open(ctx, path, runnerproto.Opening{Version: runnerproto.Version})
		if err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			return conn, opened, err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, nil, errors.Join(err, ctx.Err())
		}
	}
}

// open makes one connection and has it taken in.
func open(ctx context.Context, path string, o runnerproto.Opening) (_ net.Conn, _ *runnerproto.Opened, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			_ = conn.Close()
		}
	}()
	if err := runnerproto.WriteFrame(conn, o, runnerproto.MaxOpening); err != nil {
		return nil, nil, err
	}
	var opened runnerproto.Opened
	if err := runnerproto.ReadFrame(conn, &opened, runnerproto.MaxOpening); err != nil {
		return nil, nil, fmt.Errorf("opening: %w", err)
	}
	if opened.Error != nil {
		return nil, nil, opened.Error
	}
	return conn, &opened, nil
}

// About says what the runner said about its world: which layers it has, and where
// the program sees its folders.
func (w *World) About() runnerproto.World { return w.about }

// Gone is closed when there is no runner any more.
func (w *World) Gone() <-chan struct{} { return w.alive.Done() }

// Close hangs up, which ends every process of the world, and waits for what runs
// here on its behalf. The world's folders are emptied; the runner goes on.
func (w *World) Close() error {
	w.hangUp()
	w.wg.Wait()
	return nil
}

// hangUp ends the connection, and whoever waits for something of it.
func (w *World) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended = true
	w.end()
	_ = w.conn.Close()
	for conn := range w.streams {
		_ = conn.Close()
	}
}
