package call

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fence"
)

// lookAfter is how often the record is looked at while a call is under way.
const lookAfter = time.Second

// errRunOver is why a call was ended.
var errRunOver = errors.New("call: the run is over")

// whileItRuns is a context that ends also when the run of the grant does, or has
// its end decided, or is no longer the committed one: nothing that was admitted
// works on for a run that is over, whether its worker says so or has gone. A store
// that does not answer ends nothing. done ends the looking.
func (s *Service) whileItRuns(ctx context.Context, g fence.Grant) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(lookAfter)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if s.over(ctx, g) {
				cancel(errRunOver)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

func (s *Service) over(ctx context.Context, g fence.Grant) bool {
	e := g.Envelope()
	r, err := s.cfg.Records.Load(ctx, e.BindingID)
	if err != nil {
		return false
	}
	return r.Run == nil || r.Run.ID != e.RunID || r.Epoch != e.Epoch || r.Generation != e.Generation || !r.Run.End.Open()
}
