package linearizability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	processes      = 4
	clientsAtOnce  = 64
	perProcess     = clientsAtOnce / processes
	plantedOps     = 24
	plantedClients = 4
	// chapterOps is how many operations are made on one store: FerretDB scans, so
	// that a large one only takes longer.
	chapterOps       = 2000
	checkLimit       = 5 * time.Minute // of one part
	kills            = 6
	maxViolationsOut = 2
)

// Config of a run.
type Config struct {
	// Backend is its name in the report.
	Backend string
	// Store gives the location of a new, empty store.
	Store func() (string, error)
	// Ops is how many operations are to be made.
	Ops int
	// Command starts a process that calls Serve.
	Command []string
	Seed    uint64
	// People are told how it goes, and what the processes say.
	People io.Writer
}

// Report is the closing line of one back end.
type Report struct {
	Target     string `json:"target"`
	Backend    string `json:"backend"`
	Ops        int    `json:"ops"`
	Violations int    `json:"violations"`
	// PlantedFaultCaught says that each write without its fence was found.
	PlantedFaultCaught bool          `json:"planted_fault_caught"`
	Planted            map[kind]bool `json:"planted"`
	Clients            int           `json:"clients"`
	Kills              int           `json:"kills"`
	// Unknown is how many operations nobody knows the outcome of, and LostAnswers in
	// how many an answer of the store was lost.
	Unknown     int          `json:"unknown"`
	LostAnswers int          `json:"lost_answers"`
	ByKind      map[kind]int `json:"by_kind"`
	Done        map[kind]int `json:"done"`
	Seconds     float64      `json:"seconds"`
}

// Verdict says what did not hold.
func (r Report) Verdict() error {
	var errs []error
	if r.Violations > 0 {
		errs = append(errs, fmt.Errorf("%s: %d parts of the history are not linearizable", r.Backend, r.Violations))
	}
	if !r.PlantedFaultCaught {
		errs = append(errs, fmt.Errorf("%s: a planted write without its fence was not found: %v", r.Backend, r.Planted))
	}
	for _, k := range planted() {
		// On a store that is slow a few clients alone may miss the window of an effect.
		if r.Done[k] == 0 && r.Ops >= chapterOps {
			errs = append(errs, fmt.Errorf("%s: no %s was done, so that nothing is proven", r.Backend, k))
		}
	}
	if r.Kills == 0 || r.LostAnswers == 0 {
		errs = append(errs, fmt.Errorf("%s: nothing was killed, or lost", r.Backend))
	}
	return errors.Join(errs...)
}

// Run makes a history and checks it, and then one for each planted fault.
func Run(ctx context.Context, cfg Config) (Report, error) {
	begun := time.Now()
	r := Report{
		Target: "linearizability", Backend: cfg.Backend, Clients: clientsAtOnce,
		Planted: map[kind]bool{}, ByKind: map[kind]int{}, Done: map[kind]int{}, PlantedFaultCaught: true,
	}
	for made := 0; made < cfg.Ops; made += chapterOps {
		chapter := cfg
		chapter.Ops, chapter.Seed = min(chapterOps, cfg.Ops-made), cfg.Seed+uint64(made)
		if err := chapter.judge(ctx, &r); err != nil {
			return r, err
		}
	}
	for _, k := range planted() {
		history, err := cfg.planted(ctx, k)
		if err != nil {
			return r, err
		}
		r.Planted[k] = len(Check(history, checkLimit)) > 0
		r.PlantedFaultCaught = r.PlantedFaultCaught && r.Planted[k]
	}
	r.Seconds = time.Since(begun).Round(time.Millisecond).Seconds()
	return r, nil
}

// judge makes one history and adds what it shows to the report.
func (cfg Config) judge(ctx context.Context, r *Report) error {
	history, killed, err := cfg.history(ctx)
	if err != nil {
		return err
	}
	r.Ops, r.Kills = r.Ops+len(history), r.Kills+killed
	for _, e := range history {
		r.ByKind[e.Op.Kind]++
		if e.Outcome.Result == unknown {
			r.Unknown++
		}
		if e.Outcome.Result == done {
			r.Done[e.Op.Kind]++
		}
		if e.Outcome.Lost {
			r.LostAnswers++
		}
	}
	violations := Check(history, checkLimit)
	r.Violations += len(violations)
	for _, v := range violations[:min(len(violations), maxViolationsOut)] {
		_, _ = fmt.Fprintf(cfg.People, "%s: %v\n", cfg.Backend, v)
	}
	_, _ = fmt.Fprintf(cfg.People, "%s: %d operations, %d parts not linearizable\n", cfg.Backend, r.Ops, r.Violations)
	return nil
}

func (cfg Config) plan(ctx context.Context, ops, clients int) (plan, error) {
	store, err := cfg.Store()
	if err != nil {
		return plan{}, err
	}
	p := plan{
		Store: store, Bindings: max(window/2, ops/opsPerBinding), Records: max(window/2, ops/opsPerRecord),
		Clients: clients, Ops: max(1, ops/clients), Seed: cfg.Seed,
	}
	s, err := openStores(ctx, store)
	if err != nil {
		return plan{}, err
	}
	return p, errors.Join(s.insert(ctx, p.Bindings), s.close())
}

// planted is a history of a few clients of this process, one of which leaves out a
// fence.
func (cfg Config) planted(ctx context.Context, k kind) ([]Entry, error) {
	p, err := cfg.plan(ctx, plantedOps, plantedClients)
	if err != nil {
		return nil, err
	}
	p.Plant = k
	var h book
	err = clients(ctx, p, func(m message) error { h.hear(m, 0); return nil })
	return h.close(), err
}

// history is that of all processes, some of which are killed on the way and
// replaced by others.
func (cfg Config) history(ctx context.Context) (_ []Entry, killed int, err error) {
	p, err := cfg.plan(ctx, cfg.Ops, clientsAtOnce)
	if err != nil {
		return nil, 0, err
	}
	p.Clients = perProcess
	h := &book{every: max(1, cfg.Ops/(kills+1)), kill: make(chan struct{}, kills)}
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	for n := range processes {
		mine := p
		mine.First = n * perProcess
		group.Go(func() error {
			for mine.Life = 0; ; mine.Life++ {
				again, err := cfg.life(ctx, mine, h)
				if err != nil || !again {
					return err
				}
				mu.Lock()
				killed++
				mu.Unlock()
				mine.From = h.least(mine.First, perProcess)
			}
		})
	}
	err = group.Wait()
	return h.close(), killed, err
}

// life of a process, to its end, or until it is killed, after which another one
// goes on.
func (cfg Config) life(ctx context.Context, p plan, h *book) (killed bool, err error) {
	proc, err := spawn(ctx, cfg.Command, p, cfg.People)
	if err != nil {
		return false, err
	}
	heard := 0
	err = proc.listen(func(m message) {
		h.hear(m, p.Life)
		heard++
		if killed || heard < perProcess {
			return
		}
		select {
		case <-h.kill:
			killed = proc.cmd.Process.Kill() == nil
		default:
		}
	})
	if killed {
		return true, nil // which is how it ended
	}
	return false, err
}
