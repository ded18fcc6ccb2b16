package stack

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// again is how often a condition is looked at.
const again = 20 * time.Millisecond

// Until looks at a condition again and again until it holds, or ctx ends. An
// error of the condition is one that may go away: the last of them is in what
// Until gives when time is up.
func Until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		ok, last := holds()
		if ok && last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited in vain: %w", ctx.Err()), last)
		case <-tick.C:
		}
	}
}
