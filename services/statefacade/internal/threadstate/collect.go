package threadstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/binding"
)

const (
	// lostFor is how long a snapshot that lost stays: it still counts for the rate.
	lostFor = time.Minute
	// sweepPage is how many bindings are read at a time.
	sweepPage = 256
)

// collect removes the snapshots of a binding that lost, and gives those that
// stay. One is removed only after a majority read has shown that its run is over
// and that it is not the head: a run that is over stays over, so no commit that
// names the snapshot can happen any more, however late it arrives. The read comes
// after the list, because whoever staged was admitted in a run that was not over
// then. The payload goes first, and what names it after it.
func (s *Service) collect(ctx context.Context, bindingID string) (kept []Entry, err error) {
	all, err := s.snapshots.List(ctx, bindingID)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	r, err := s.writer.Backend().Load(ctx, bindingID)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if !hasLost(r, e) || s.now().Sub(e.At) < lostFor {
			kept = append(kept, e)
			continue
		}
		if err := s.remove(ctx, e); err != nil { // it counts, and the next one tries again
			s.logger.WarnContext(ctx, "a snapshot that lost was left behind", "error", err.Error())
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// hasLost reports whether a snapshot can be the head no more.
func hasLost(r binding.Record, e Entry) bool {
	head := r.Epoch == e.Owner.Epoch && r.Head.SnapshotRef == e.Ref
	return !head && over(r, e)
}

func over(r binding.Record, e Entry) bool { return r.Run == nil || r.Run.ID != e.Owner.RunID }

func (s *Service) remove(ctx context.Context, e Entry) error {
	if e.Blob != "" {
		if err := s.blobs.Delete(ctx, e.Blob); err != nil {
			return err
		}
	}
	return s.snapshots.Remove(ctx, e.Ref)
}

// Sweep collects in every binding that has a snapshot which nobody has looked at
// since its run was over. A binding that could not be read is tried again by the
// next sweep.
func (s *Service) Sweep(ctx context.Context) error {
	before, after := s.now().Add(-lostFor), ""
	var errs []error
	for {
		ids, err := s.snapshots.Unsettled(ctx, before, after, sweepPage)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("sweep: %w", err))...)
		}
		for _, id := range ids {
			if err := s.sweepBinding(ctx, id); err != nil {
				errs = append(errs, fmt.Errorf("sweep: %w", err))
			}
		}
		if len(ids) < sweepPage || ctx.Err() != nil {
			return errors.Join(errs...)
		}
		after = ids[len(ids)-1]
	}
}

// sweepBinding settles what stays. A newer snapshot of the binding is unsettled
// again, and with it all are looked at.
func (s *Service) sweepBinding(ctx context.Context, bindingID string) error {
	kept, err := s.collect(ctx, bindingID)
	if err != nil {
		return err
	}
	r, err := s.writer.Backend().Load(ctx, bindingID)
	if err != nil {
		return err
	}
	for _, e := range kept {
		if !hasLost(r, e) && over(r, e) {
			err = errors.Join(err, s.snapshots.Settle(ctx, e.Ref))
		}
	}
	return err
}
