package agents

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
)

// atOnce is how many contents are asked about together.
const atOnce = 8

// Contents keeps what versions of agents name: the file broker does. What it keeps stays
// as long as versions do. Its methods are safe for concurrent use.
type Contents interface {
	// PutContent stores a content, for a while. A repeat is harmless. invalid_request
	// where r is another one.
	PutContent(ctx context.Context, c blob.Content, r io.Reader) error
	// KeepContent says that a version names a content. not_found.
	KeepContent(ctx context.Context, c blob.Content) error
}

// put stores what was found for a draft, before a version names it.
func (r *Registry) put(ctx context.Context, d Draft) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for c, found := range d.found {
		g.Go(func() error { return r.putFound(ctx, d, c, found) })
	}
	return g.Wait()
}

func (r *Registry) putFound(ctx context.Context, d Draft, c blob.Content, found agentfiles.Found) (err error) {
	file, err := d.folder.Open(found)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	err = r.contents.PutContent(ctx, c, file)
	if fault.Is(err, fault.InvalidRequest) || fault.Is(err, fault.RequestTooLarge) {
		err = fmt.Errorf("%q changed while it was read; start again: %w", found.Path, err)
	}
	return err
}

// keep says that a version names what was found for its draft. A process that was killed
// before it said so may have left that to a time when it is gone again.
func (r *Registry) keep(ctx context.Context, d Draft) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for c, found := range d.found {
		g.Go(func() error {
			err := r.contents.KeepContent(ctx, c)
			if !fault.Is(err, fault.NotFound) {
				return err
			}
			if err := r.putFound(ctx, d, c, found); err != nil {
				return err
			}
			return r.contents.KeepContent(ctx, c)
		})
	}
	return g.Wait()
}

// keepNamed keeps the contents that an agent names, before a version of it is made: they
// are there already, or it cannot be made. Of those that are missing it names the first.
func (r *Registry) keepNamed(ctx context.Context, a Agent) error {
	const op = "agents.Put"
	for _, part := range []struct {
		field string
		files []agentfiles.File
	}{{"skills", a.Skills}, {"files", a.Files}} {
		missing := make([]bool, len(part.files))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for i, f := range part.files {
			g.Go(func() error {
				err := r.contents.KeepContent(ctx, f.Content())
				if missing[i] = fault.Is(err, fault.NotFound); missing[i] {
					return nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return fault.Wrap(err, fault.DependencyUnavailable, op)
		}
		for i, m := range missing {
			if m {
				return fault.New(fault.InvalidRequest, op, fault.Detail(fmt.Sprintf("%s[%d].sha256: no content of this SHA-256 and size is kept; "+
					"name one that a version of an agent has, or put the file beside the operator's file of agents and start with that", part.field, i)))
			}
		}
	}
	return nil
}
