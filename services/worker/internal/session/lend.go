package session

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// lend gives the facades to the harness for as long as the run lasts: authority
// belongs to a run. A call that a harness makes with a context of its own ends
// with the run too, and one that it makes later is refused. What has effects
// outside is counted.
func (r *Run) lend(f harness.Facades) harness.Facades {
	if f.Model.HTTP != nil && f.Model.HTTP.Transport != nil {
		client := *f.Model.HTTP
		client.Transport = lentTransport{r, client.Transport}
		f.Model.HTTP = &client
	}
	if f.Tools != nil {
		f.Tools = lentTools{r, f.Tools}
	}
	if f.Thread != nil {
		f.Thread = lentThread{r, f.Thread}
	}
	if f.Files != nil {
		f.Files = lentFiles{r, f.Files}
	}
	if f.Memory != nil {
		f.Memory = lentMemory{r, f.Memory}
	}
	return f
}

// within is ctx while the run lasts. The caller has to call done.
func (r *Run) within(ctx context.Context) (_ context.Context, done func(), err error) {
	if err := r.ctx.Err(); err != nil {
		return nil, nil, fault.From(err, "session.within")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.ctx, func() { cancel(r.ctx.Err()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}, nil
}

// call lets a facade work while the run lasts.
func call[T any](ctx context.Context, r *Run, do func(context.Context) (T, error)) (T, error) {
	ctx, done, err := r.within(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer done()
	return do(ctx)
}

// act is call for what has an effect outside.
func act[T any](ctx context.Context, r *Run, key string, do func(context.Context) (T, error)) (T, error) {
	return call(ctx, r, func(ctx context.Context) (T, error) {
		r.mu.Lock()
		r.effects.begin(key)
		r.mu.Unlock()
		out, err := do(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.effects.end(key, err)
		return out, err
	})
}

type lentTools struct {
	r    *Run
	next harness.ToolCaller
}

func (l lentTools) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	if l.r.delegates(c.ToolID) {
		if n := l.r.nest(c.CallID); n != nil {
			defer n.close()
			c.Tell = n.tell
		}
	}
	return act(ctx, l.r, "call:"+c.CallID, func(ctx context.Context) (harness.ToolResult, error) { return l.next.Call(ctx, c) })
}

type lentThread struct {
	r    *Run
	next harness.ThreadState
}

func (l lentThread) Load(ctx context.Context, c harness.Codec) (harness.Head, error) {
	return call(ctx, l.r, func(ctx context.Context) (harness.Head, error) { return l.next.Load(ctx, c) })
}

func (l lentThread) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	_, err := call(ctx, l.r, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.next.Commit(ctx, c, revision, payload)
	})
	return err
}

func (l lentThread) Interrupt(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	_, err := call(ctx, l.r, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.next.Interrupt(ctx, c, revision, payload)
	})
	return err
}

type lentFiles struct {
	r    *Run
	next harness.Files
}

func (l lentFiles) Read(ctx context.Context, f harness.File, maxBytes int) ([]byte, error) {
	return call(ctx, l.r, func(ctx context.Context) ([]byte, error) { return l.next.Read(ctx, f, maxBytes) })
}

func (l lentFiles) Write(ctx context.Context, u harness.Upload, name, mimeType string, content []byte) (string, error) {
	return act(ctx, l.r, "upload:"+u.Handle, func(ctx context.Context) (string, error) {
		return l.next.Write(ctx, u, name, mimeType, content)
	})
}

type lentMemory struct {
	r    *Run
	next harness.Memory
}

func (l lentMemory) Get(ctx context.Context, scope harness.MemoryScope, key string) (harness.MemoryRecord, error) {
	return call(ctx, l.r, func(ctx context.Context) (harness.MemoryRecord, error) { return l.next.Get(ctx, scope, key) })
}

func (l lentMemory) Search(ctx context.Context, scope harness.MemoryScope, q harness.MemoryQuery) (harness.MemoryFound, error) {
	return call(ctx, l.r, func(ctx context.Context) (harness.MemoryFound, error) { return l.next.Search(ctx, scope, q) })
}

func (l lentMemory) Put(ctx context.Context, callID string, scope harness.MemoryScope, key string, m harness.MemoryRecord) (harness.MemoryWritten, error) {
	return act(ctx, l.r, "memory:"+callID, func(ctx context.Context) (harness.MemoryWritten, error) {
		return l.next.Put(ctx, callID, scope, key, m)
	})
}

func (l lentMemory) Delete(ctx context.Context, callID string, scope harness.MemoryScope, key string, revision uint64) error {
	_, err := act(ctx, l.r, "memory:"+callID, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.next.Delete(ctx, callID, scope, key, revision)
	})
	return err
}

// lentTransport closes a model's stream with the run, also one that the harness
// does not let go of.
type lentTransport struct {
	r    *Run
	next http.RoundTripper
}

func (l lentTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, done, err := l.r.within(req.Context())
	if err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	res, err := l.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		done()
		return nil, err
	}
	res.Body = &lentBody{ReadCloser: res.Body, done: sync.OnceFunc(done)}
	return res, nil
}

// lentBody lets go of the run once it is closed or read to its end.
type lentBody struct {
	io.ReadCloser

	done func()
}

func (b *lentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done()
	}
	return n, err
}

func (b *lentBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
