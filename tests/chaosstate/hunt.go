package chaosstate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const (
	// besieged is the program whose answers do not come for good.
	besieged = "statefacade"
	// deathsOfASiege is how many of its processes die at least in the siege after heads
	// have moved.
	deathsOfASiege = 3
	// glance is how often an armed process is looked at.
	glance = 5 * time.Millisecond
	// search is how often processes to arm are looked for.
	search = 100 * time.Millisecond
	// stale is after how long without effect a process is armed with another point
	// as well, such as one that is bound already and would be killed when it is.
	stale = time.Second
	// unborn is how long a new process is left alone in a siege.
	unborn = 30 * time.Millisecond
)

// prey is a program that is hunted.
type prey struct {
	program string
	// most is how many of its processes are armed at once, stale ones apart.
	most int
	// after are those that are killed at each of their points before: what takes
	// everything else with it comes last.
	after []string
	// restless is in how many of a hundred cases it has no rest after a kill, once all
	// programs were killed at each of their points.
	restless int
}

func preys() []prey {
	return []prey{
		{program: "worker", most: 3, restless: 100},
		{program: "statefacade", most: 1, restless: 75},
		{program: "controlplane", most: 1, after: []string{"worker", "statefacade"}},
	}
}

// rest is how long nothing of a program is armed after a kill: a part that is always
// away shows nothing. The supervisor starts one that lived for more than 10 s again
// at once, and one that keeps dying later and later.
func (h *hunt) rest(p prey) time.Duration {
	const longLife = 11 * time.Second
	switch {
	case p.restless == 100 || !h.everywhere(p.program):
		return 0
	case h.everywhere("") && rand.IntN(100) < p.restless: //nolint:gosec // chance, not secrets
		return rand.N(time.Second) //nolint:gosec // chance, not secrets
	default:
		return longLife + rand.N(longLife) //nolint:gosec // chance, not secrets
	}
}

// hunt kills processes at points.
type hunt struct {
	stack    *stack.Stack
	kills    int
	progress io.Writer
	// sieges are laid one after the other, once the besieged was killed at each of its
	// points.
	sieges []siege

	mu   sync.Mutex
	done map[failpoint.Point]int
	// at are the kills at its point with which the siege began that is laid now.
	at   int
	laid int // how many sieges were laid, with that one
}

// siege kills every process of the besieged at one point until it is over. One kill
// shows nothing of a commit that stays without an answer: the worker asks again, and
// the next state facade knows or does it.
type siege struct {
	point failpoint.Point
	over  func() bool
	// deaths are how many of them there must be as well.
	deaths int
}

func newHunt(s *stack.Stack, kills int, progress io.Writer, sieges []siege) *hunt {
	return &hunt{stack: s, kills: kills, progress: progress, sieges: sieges, done: map[failpoint.Point]int{}}
}

// counts gives the kills so far, and at each point.
func (h *hunt) counts() (all int, points map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	points = map[string]int{}
	for _, p := range failpoint.All() {
		points[p.String()] = h.done[p]
		all += h.done[p]
	}
	return all, points
}

// enough says that as many were killed as were asked for, somebody at each point,
// and that the sieges are over.
func (h *hunt) enough() bool {
	n, _ := h.counts()
	if n < h.kills || !h.everywhere("") {
		return false
	}
	_, laid := h.besieges()
	return !laid
}

// besieges gives the point at which the besieged is killed now and nowhere else. Nothing
// else is hunted meanwhile.
func (h *hunt) besieges() (_ failpoint.Point, laid bool) {
	if !h.everywhere(besieged) {
		return 0, false
	}
	for n, s := range h.sieges {
		h.mu.Lock()
		if h.laid == n {
			h.laid, h.at = n+1, h.done[s.point]
		}
		last, deaths := h.laid == n+1, h.done[s.point]-h.at
		h.mu.Unlock()
		if last && (deaths < s.deaths || !s.over()) {
			return s.point, true
		}
	}
	return 0, false
}

// besiegedAt says whether the siege of a point is laid and goes on.
func (h *hunt) besiegedAt(p failpoint.Point) bool {
	at, laid := h.besieges()
	return laid && at == p
}

// everywhere says that the program was killed at each of its points; "" is all
// programs.
func (h *hunt) everywhere(program string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.ContainsFunc(failpoint.All(), func(p failpoint.Point) bool {
		return (program == "" || p.Program() == program) && h.done[p] == 0
	})
}

// killed notes a kill.
func (h *hunt) killed(p failpoint.Point) {
	h.mu.Lock()
	h.done[p]++
	h.mu.Unlock()
	if n, _ := h.counts(); n%50 == 0 {
		_, _ = fmt.Fprintf(h.progress, "%d of %d kills\n", n, h.kills)
	}
}

// run hunts until enough were killed, or ctx ends, which is an error.
func (h *hunt) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range preys() {
		g.Go(func() error {
			err := h.of(ctx, p)
			if err != nil && ctx.Err() != nil {
				_, points := h.counts()
				err = fmt.Errorf("%w; killed so far: %v", err, points)
			}
			return err
		})
	}
	return g.Wait()
}

// armed is a process that stops at the next of some points. since is when the last
// of them was added; the signals are sent again as long as nothing comes of them,
// because one that comes as a program starts may be lost.
type armed struct {
	process procs.Process
	points  []failpoint.Point
	since   time.Time
}

// signal arms the process, or does so once more.
func (a *armed) signal() error {
	for _, p := range a.points {
		if err := syscall.Kill(a.process.PID, p.Signal()); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// of hunts one program. What is armed when enough were killed stays so, and is
// killed when it stops: it would never go on.
func (h *hunt) of(ctx context.Context, p prey) error {
	var all []*armed
	var next time.Time
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		before := len(all)
		var err error
		if all, err = h.reap(all); err != nil {
			return err
		}
		if len(all) < before {
			next = time.Now().Add(h.rest(p))
		}
		if h.enough() {
			return h.disarm(all)
		}
		if point, laid := h.besieges(); laid {
			if p.program != besieged || time.Now().Before(next) && len(all) > 0 {
				continue
			}
			next = time.Now().Add(glance)
			if all, err = h.besiege(all, point); err != nil {
				return err
			}
			continue
		}
		if time.Now().Before(next) || slices.ContainsFunc(p.after, func(first string) bool { return !h.everywhere(first) }) {
			continue
		}
		next = time.Now().Add(search)
		if all, err = h.arm(p, all); err != nil {
			return err
		}
	}
}

// reap kills whatever has stopped at a point, and gives what is left.
func (h *hunt) reap(all []*armed) (left []*armed, err error) {
	for _, a := range all {
		ignored, err := procs.Ignored(a.process.PID)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(a.points, func(p failpoint.Point) bool { return ignored.Has(p.Signal()) })
		if at < 0 {
			left = append(left, a)
			continue
		}
		if !a.process.Alive() { // it is another one by now, or somebody else was faster
			continue
		}
		if err := syscall.Kill(a.process.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, err
		}
		h.killed(a.points[at])
	}
	return left, nil
}

// arm arms one more process of a program, or one that is stale with one more point.
func (h *hunt) arm(p prey, all []*armed) ([]*armed, error) {
	all = slices.DeleteFunc(all, func(a *armed) bool { return !a.process.Alive() })
	fresh := 0
	for _, a := range all {
		if time.Since(a.since) < stale {
			fresh++
		}
	}
	if fresh >= p.most {
		return all, nil
	}
	living, err := h.stack.Processes()
	if err != nil {
		return nil, err
	}
	living = slices.DeleteFunc(living, func(q procs.Process) bool { return q.Program() != p.program || !q.Alive() })
	if len(living) == 0 {
		return all, nil // it is being started again
	}
	q := living[rand.IntN(len(living))] //nolint:gosec // chance, not secrets
	at := slices.IndexFunc(all, func(a *armed) bool { return a.process.PID == q.PID })
	if at < 0 {
		at, all = len(all), append(all, &armed{process: q})
	}
	a := all[at]
	if point, ok := h.pick(p.program, a.points); ok {
		a.points = append(a.points, point)
	}
	a.since = time.Now()
	return all, a.signal()
}

// besiege arms every process of the besieged program at the one point, new ones
// before they have answered anybody.
func (h *hunt) besiege(all []*armed, at failpoint.Point) ([]*armed, error) {
	all = slices.DeleteFunc(all, func(a *armed) bool { return !a.process.Alive() })
	living, err := h.stack.Processes()
	if err != nil {
		return nil, err
	}
	for _, q := range living {
		if q.Program() != besieged || !q.Alive() {
			continue
		}
		n := slices.IndexFunc(all, func(a *armed) bool { return a.process.PID == q.PID })
		if n < 0 {
			all = append(all, &armed{process: q, since: time.Now()})
			continue // a signal before the program handles any would end it
		}
		a := all[n]
		if time.Since(a.since) < unborn {
			continue
		}
		if !slices.Contains(a.points, at) {
			a.points = append(a.points, at)
		}
		if err := a.signal(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pick gives one of the points at which a program was killed least, unless it is
// armed already: one that a turn comes to earlier is not to get in its way.
func (h *hunt) pick(program string, but []failpoint.Point) (_ failpoint.Point, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	points := slices.DeleteFunc(failpoint.All(), func(p failpoint.Point) bool { return p.Program() != program })
	rarely := h.done[slices.MinFunc(points, func(a, b failpoint.Point) int { return h.done[a] - h.done[b] })]
	points = slices.DeleteFunc(points, func(p failpoint.Point) bool { return h.done[p] > rarely || slices.Contains(but, p) })
	if len(points) == 0 {
		return 0, false
	}
	return points[rand.IntN(len(points))], true //nolint:gosec // chance, not secrets
}

// disarm kills what is armed still: where it stops, it would stay.
func (h *hunt) disarm(all []*armed) error {
	for _, a := range all {
		if !a.process.Alive() {
			continue
		}
		if err := syscall.Kill(a.process.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
