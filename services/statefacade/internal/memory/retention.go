package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cofferdam.dev/services/statefacade/internal/digest"
)

const (
	// sweepPage is how many records one look of the sweeper takes.
	sweepPage = 256
	// RememberDeletions is how long the audit of a deleted record is kept, and with
	// it the number from which its key's revisions go on. It is far beyond what a
	// conversation remembers of a revision that it has read.
	RememberDeletions = 365 * 24 * time.Hour
)

// Sweep deletes the records whose time is over, with an audit entry each, and
// forgets those that were deleted long ago. Get and Search do not wait for it: a
// record whose time is over is not there. Any number of replicas may sweep at
// once. It says how many records it deleted.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	deleted := 0
	for {
		page, err := s.cfg.Store.Expired(ctx, s.cfg.Now(), sweepPage)
		if err != nil {
			return deleted, fmt.Errorf("memory: sweep: %w", err)
		}
		for _, a := range page {
			_, err := s.cfg.Store.Change(ctx, s.expiry(a), MaxRecords)
			switch {
			case err == nil:
				deleted++
			case errors.Is(err, ErrRevision), errors.Is(err, ErrNotFound): // somebody has written or deleted it
			default:
				return deleted, fmt.Errorf("memory: sweep: %w", err)
			}
		}
		if len(page) < sweepPage {
			break
		}
	}
	for {
		n, err := s.cfg.Store.Forget(ctx, s.cfg.Now().Add(-RememberDeletions), sweepPage)
		if err != nil {
			return deleted, fmt.Errorf("memory: sweep: %w", err)
		}
		if n < sweepPage {
			return deleted, nil
		}
	}
}

func (s *Service) expiry(a Address) Change {
	return Change{
		ID:        digest.Of("expire", a.Namespace, a.Key, strconv.FormatUint(a.Revision, 10)),
		Operation: OpExpire, Namespace: a.Namespace, Expected: a.Revision, Replaces: a.Kind,
		Record: Record{Key: a.Key, UpdatedAt: s.cfg.Now().UTC(), Origin: Origin{Writer: "retention"}},
	}
}
