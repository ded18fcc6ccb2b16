package acp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/hosted/materialize"
	"cofferdam.dev/services/worker/internal/loopback"
)

// runtime is the agent of one binding. Between two runs no process of it is there,
// but for one that was stopped while it asks.
type runtime struct {
	cfg          Config
	construction harness.Construction
	tools        catalogue

	// operation is held by the one run, or by Cleanup.
	operation chan struct{}
	endpoints *loopback.Server
	// pristine is a world in which nothing has run. at is the revision that the home
	// holds; it means nothing while dirty.
	pristine, dirty bool
	at              uint64
	held            *held
}

// held is an agent that was stopped with its questions open.
type held struct {
	program   *program
	projector *projector
	asks      []*ask
	interrupt string
	revision  uint64
	made      int64
}

// Stream runs one turn.
func (r *runtime) Stream(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	if err := r.take(ctx); err != nil {
		return harness.Result{}, err
	}
	defer r.give()
	if err := r.drop(ctx); err != nil {
		return harness.Result{}, err
	}
	t := r.newTurn(ctx, in.RunID, f, emit)
	return r.fresh(ctx, t, func(ctx context.Context, p *program, first bool) ([]block, error) {
		return t.blocks(ctx, p, in, first)
	})
}

// fresh runs a turn in a new program, on the session of the head.
func (r *runtime) fresh(ctx context.Context, t *turn, prompt func(context.Context, *program, bool) ([]block, error)) (harness.Result, error) {
	head, err := t.facades.Thread.Load(ctx, codec(&r.cfg.Preset))
	if err != nil {
		return harness.Result{}, err
	}
	t.revision = head.Revision
	var state snapshot
	if head.Revision > 0 {
		if state, err = decodeSnapshot(head.Payload); err != nil {
			return harness.Result{}, err
		}
	}
	if err := r.open(ctx, t); err != nil {
		return harness.Result{}, err
	}
	defer t.run.Close()
	if err := r.restore(ctx, head.Revision, state); err != nil {
		return harness.Result{}, err
	}
	r.dirty = true
	p, err := r.start(ctx, t, state)
	if err != nil {
		return harness.Result{}, err
	}
	blocks, err := prompt(ctx, p, head.Revision == 0)
	if err != nil {
		return harness.Result{}, errors.Join(err, t.quit(ctx))
	}
	t.begin(ctx, blocks)
	return t.drive(ctx)
}

// open opens the endpoints to a run.
func (r *runtime) open(ctx context.Context, t *turn) error {
	if r.endpoints == nil {
		s, err := loopback.New(ctx, loopback.Config{Tools: r.construction.Tools, Logger: r.cfg.Logger})
		if err != nil {
			return fault.From(err, "acp.open")
		}
		r.endpoints = s
	}
	run, err := r.endpoints.Begin(ctx, loopback.RunConfig{
		Tag: t.tag, Model: t.facades.Model, Tools: t.facades.Tools, Limits: r.construction.Limits,
		Emit: brokerEvents{t}, Gate: t, ModelCallEnded: t.modelCallEnded,
	})
	t.run = run
	return err
}

// restore brings the home to what a head holds.
func (r *runtime) restore(ctx context.Context, revision uint64, s snapshot) error {
	if !r.dirty && !r.pristine && r.at == revision {
		return nil
	}
	prepare := r.reset
	if r.pristine { // the workspace stays as it is from then on
		prepare = r.materialize
	}
	if err := prepare(ctx); err != nil {
		return err
	}
	r.pristine = false
	if revision == 0 {
		return nil
	}
	return r.cfg.World.Restore(ctx, bytes.NewReader(s.archive))
}

// materialize copies the manifests into the world, where the agent can read them.
func (r *runtime) materialize(ctx context.Context) error {
	return materialize.Copy(ctx, r.cfg.World, r.cfg.Workspace, r.construction.Manifest)
}

// reset empties the home of what a run left there that was not committed.
func (r *runtime) reset(ctx context.Context) error {
	return r.cfg.World.ResetHome(ctx)
}

// archive is the thread state of a world in which nothing runs.
func (r *runtime) archive(ctx context.Context, h header) ([]byte, error) {
	most := r.construction.Limits.StateBytes
	if most <= 0 {
		most = defaultState
	}
	b := bounded{room: max(most-maxHeader, 0)}
	paths := hosted.Paths{Include: r.cfg.Preset.State.Include, Exclude: r.cfg.Preset.State.Exclude}
	if err := r.cfg.World.Archive(ctx, paths, b.room, &b); err != nil {
		return nil, fault.From(err, "acp.archive")
	}
	return snapshot{header: h, archive: b.Bytes()}.encode()
}

// drop ends an agent that waits for an answer which will not come.
func (r *runtime) drop(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	p := r.held.program
	r.held, r.dirty = nil, true
	return p.stop(ctx, false)
}

// take waits for the one operation before.
func (r *runtime) take(ctx context.Context) error {
	select {
	case r.operation <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "acp.take")
	}
}

func (r *runtime) give() { <-r.operation }

// Cleanup ends the agent and the endpoints. A run that does not end in time loses
// its processes all the same.
func (r *runtime) Cleanup(ctx context.Context) error {
	if err := r.take(ctx); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		return errors.Join(err, r.cfg.World.KillAll(end, 0))
	}
	defer r.give()
	err := r.drop(ctx)
	if r.endpoints != nil {
		r.endpoints.Close()
		r.endpoints = nil
	}
	return errors.Join(err, r.cfg.World.KillAll(ctx, 0))
}

// tagOf makes ids differ between the runs of a conversation.
func tagOf(runID string) string {
	sum := sha256.Sum256([]byte(runID))
	return hex.EncodeToString(sum[:6])
}

// brokerEvents takes the events of brokered calls. A message that is open ends
// before a call begins.
type brokerEvents struct{ t *turn }

// Emit implements harness.Emitter.
func (b brokerEvents) Emit(_ context.Context, d event.Draft) error {
	return b.t.project(func(p *projector) ([]event.Draft, error) {
		switch d := d.Data.(type) {
		case event.ToolStarted:
			p.underway = append(p.underway, d.ToolCallID)
			return append(p.closeTexts(), event.Draft{Data: d}), nil
		case event.ToolFinished:
			p.ended(d.ToolCallID)
		case event.ToolError:
			p.ended(d.ToolCallID)
		}
		return []event.Draft{d}, nil
	})
}
