package files

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fence"
)

const (
	// grace is how long something is left alone whose time is over: the clocks of
	// those who work with it differ.
	grace = 10 * time.Minute
	// strayAfter is when a blob is nobody's that no entry names. An entry is there before
	// its blob, and that of a content in the request that wrote the blob, so that this
	// only keeps a clock that is wrong from mattering.
	strayAfter = time.Hour
	// partsAfter is when a part belongs to no upload any more, whatever became of it:
	// no run lives longer.
	partsAfter = 25 * time.Hour
	// collectPage is how many entries are looked at together.
	collectPage = 256
)

// Collected is what one collection removed.
type Collected struct {
	// Staged objects that did not become visible in time, objects that nothing refers
	// to, expired uploads, and blobs that no entry names.
	Staged, Objects, Uploads, Strays int
	// Contents that nothing came to refer to.
	Contents int
}

// Collect removes what no handle, manifest or state refers to:
//
//   - uploads in parts whose handle has expired, and staged objects whose request has
//     ended without them;
//   - objects of an epoch that is over: its conversation was cleared, and no handle is
//     made for them any more;
//   - files that were stored by themselves, and that no run was given in time;
//   - contents of agents that no version came to name in time;
//   - blobs that no entry names: whoever was to remove one was killed between the two.
//
// Everything is decided in the catalogue, in one atomic step each, so that it is safe
// beside uploads, issues and other collections: an entry goes first, and its blob
// after it. One that fails is finished by the next. Objects of a conversation that is
// not known stay.
func (s *Service) Collect(ctx context.Context) (c Collected, err error) {
	now := s.now()
	err = errors.Join(
		s.collectUploads(ctx, now, &c),
		s.collectObjects(ctx, now, &c),
		s.collectContents(ctx, now, &c),
		s.collectStrays(ctx, now, &c),
		s.catalogue.ForgetExpired(ctx, now.Add(-grace)),
	)
	return c, err
}

func (s *Service) collectUploads(ctx context.Context, now time.Time, c *Collected) error {
	for {
		expired, err := s.catalogue.ExpiredUploads(ctx, now.Add(-grace), collectPage)
		if err != nil || len(expired) == 0 {
			return err
		}
		for _, u := range expired {
			staged{s: s, object: Object{ID: u.ObjectID, BindingID: u.BindingID}}.drop(ctx)
			if !s.endUpload(ctx, u) {
				return errLeft
			}
			c.Uploads++
		}
	}
}

var errLeft = errors.New("files: something could not be collected yet")

func (s *Service) collectObjects(ctx context.Context, now time.Time, c *Collected) error {
	epochs := map[string]uint32{}
	for after := ""; ; {
		page, err := s.catalogue.Entries(ctx, after, collectPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, e := range page {
			if err := s.collectObject(ctx, now, e, epochs, c); err != nil {
				return err
			}
			after = e.ID
		}
	}
}

func (s *Service) collectObject(ctx context.Context, now time.Time, e Entry, epochs map[string]uint32, c *Collected) error {
	if !e.Visible {
		if e.StagedUntil.Add(grace).After(now) {
			return nil
		}
		dropped, err := s.catalogue.DropObject(ctx, e.ID)
		switch {
		case err != nil:
			return err
		case dropped:
			c.Staged++
			return s.blobs.Delete(ctx, e.blobKey())
		}
		// It is visible, and does not say so.
	}
	if e.CreatedAt.Add(s.collectAfter).After(now) {
		return nil
	}
	over, err := s.epochIsOver(ctx, e.Object, epochs)
	if err != nil || !over && e.Referenced {
		return err
	}
	retired, err := s.catalogue.Retire(ctx, e.ID, !over)
	if err != nil || !retired {
		return err
	}
	c.Objects++
	return s.blobs.Delete(ctx, e.blobKey())
}

// epochIsOver asks committed state. Epochs only rise, so that what is over stays so.
func (s *Service) epochIsOver(ctx context.Context, o Object, epochs map[string]uint32) (bool, error) {
	epoch, known := epochs[o.BindingID]
	if !known {
		state, err := s.records.Committed(ctx, o.BindingID)
		if err != nil && !errors.Is(err, fence.ErrUnknownBinding) {
			return false, err
		}
		epoch = state.Epoch // 0 of one that is not known
		epochs[o.BindingID] = epoch
	}
	return o.Epoch < epoch, nil
}

func (s *Service) collectStrays(ctx context.Context, now time.Time, c *Collected) error {
	remove := func(e blob.Entry) error {
		if err := s.blobs.Delete(ctx, e.Key); err != nil {
			return err
		}
		c.Strays++
		return nil
	}
	objects := s.blobs.Each(ctx, folderOf(objectsPrefix), func(e blob.Entry) error {
		if e.Written.Add(strayAfter).After(now) {
			return nil
		}
		known, err := s.catalogue.Known(ctx, path.Base(e.Key))
		if err != nil || known {
			return err
		}
		return remove(e)
	})
	contents := s.blobs.Each(ctx, folderOf(contentsPrefix), func(e blob.Entry) error {
		if e.Written.Add(strayAfter).After(now) {
			return nil
		}
		known, err := s.knownContent(ctx, e.Key)
		if err != nil || known {
			return err
		}
		return remove(e)
	})
	parts := s.blobs.Each(ctx, folderOf(partsPrefix), func(e blob.Entry) error {
		if e.Written.Add(partsAfter).After(now) {
			return nil
		}
		return remove(e)
	})
	return errors.Join(objects, contents, parts)
}

func folderOf(prefix string) string { return strings.TrimSuffix(prefix, "/") }
