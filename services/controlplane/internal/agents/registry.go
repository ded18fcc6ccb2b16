package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/harnesses"
)

const (
	// maxAgents of an installation.
	maxAgents = 1000
	// maxCached versions are kept decoded; what was read once never changes.
	maxCached = 256
	// maxRaces bounds how often a seed tries again because another replica seeded.
	maxRaces = 16
)

// Newest is what stands of an agent: the number of its newest version, and the
// digest of what that was made of. A zero Version is no agent.
type Newest struct {
	ID      string
	Version uint32
	Digest  string
}

// Record is one version as it is kept.
type Record struct {
	ID      string
	Version uint32
	// Digest of what the operator gave, before defaults.
	Digest string
	// Body is JSON.
	Body []byte
	// At is when it was made; for people.
	At time.Time
}

// ErrNoVersion says that there is no such version of an agent.
var ErrNoVersion = errors.New("agents: no such version")

// Store keeps versions, which never change once they are there. All replicas of a
// control plane share one. Its methods are safe for concurrent use; an error other
// than the named ones leaves open what happened.
type Store interface {
	// Newest gives the newest version of an agent, a zero one where there is none.
	Newest(ctx context.Context, id string) (Newest, error)
	// Load gives one version. Errors: ErrNoVersion.
	Load(ctx context.Context, id string, version uint32) (Record, error)
	// Insert makes a version where none of this number stands, and reports whether it
	// did. Of several inserts of one number one is made.
	Insert(ctx context.Context, r Record) (made bool, err error)
	// List gives the newest version of each agent, by id, at most limit of them.
	List(ctx context.Context, limit int) ([]Newest, error)
	// Digests are those of all versions of an agent.
	Digests(ctx context.Context, id string) (map[string]uint32, error)
}

// Registry gives agents by version, and takes new versions. It is safe for
// concurrent use.
type Registry struct {
	store     Store
	harnesses *harnesses.Catalogue
	contents  Contents
	logger    *slog.Logger
	now       func() time.Time

	mu    sync.Mutex
	known map[Newest]Agent // without digests
}

// NewRegistry makes a Registry. What an agent asks of its harness is checked by the
// catalogue, and what it names is kept by contents.
func NewRegistry(store Store, c *harnesses.Catalogue, contents Contents, logger *slog.Logger, now func() time.Time) *Registry {
	return &Registry{store: store, harnesses: c, contents: contents, logger: logger, now: now, known: map[Newest]Agent{}}
}

// Newest gives the newest version of an agent. Errors: not_found,
// dependency_unavailable.
func (r *Registry) Newest(ctx context.Context, id string) (Agent, error) {
	const op = "agents.Newest"
	if !idPattern.MatchString(id) {
		return Agent{}, fault.New(fault.NotFound, op, fault.Detail("agent_id: unknown"))
	}
	n, err := r.store.Newest(ctx, id)
	switch {
	case err != nil:
		return Agent{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	case n.Version == 0:
		return Agent{}, fault.New(fault.NotFound, op, fault.Detail("agent_id: unknown"))
	}
	return r.At(ctx, id, n.Version)
}

// At gives one version of an agent: what a conversation began with. Errors:
// not_found, dependency_unavailable.
func (r *Registry) At(ctx context.Context, id string, version uint32) (Agent, error) {
	const op = "agents.At"
	key := Newest{ID: id, Version: version}
	r.mu.Lock()
	a, ok := r.known[key]
	r.mu.Unlock()
	if ok {
		return a, nil
	}
	rec, err := r.store.Load(ctx, id, version)
	switch {
	case errors.Is(err, ErrNoVersion):
		return Agent{}, fault.Wrap(err, fault.NotFound, op, fault.Detail("agent_id: this version is unknown"))
	case err != nil:
		return Agent{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	// What is stored may be of an older program, which knew fewer fields, and is not
	// of a newer one: that moves the store's version on.
	dec := json.NewDecoder(strings.NewReader(string(rec.Body)))
	dec.UseNumber()
	if err := dec.Decode(&a); err != nil {
		return Agent{}, fault.Wrap(err, fault.Internal, op)
	}
	a.ID, a.Version = id, version
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxCached {
		clear(r.known)
	}
	r.known[key] = a
	return a, nil
}

// List gives the newest version of every agent, by id.
func (r *Registry) List(ctx context.Context) ([]Agent, error) {
	all, err := r.store.List(ctx, maxAgents)
	if err != nil {
		return nil, fault.Wrap(err, fault.DependencyUnavailable, "agents.List")
	}
	out := make([]Agent, 0, len(all))
	for _, n := range all {
		a, err := r.At(ctx, n.ID, n.Version)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Put makes the next version of an agent, where expected is the newest one; 0 makes
// the agent. Conversations that have begun stay on their version. What stands
// already is not made again: a repeat is answered with the version that it made.
//
// Errors: invalid_request with the fields that are wrong, harness_options_invalid
// with those that the agent's harness does not take, revision_conflict where
// another version is the newest, capacity, dependency_unavailable. Contents that the
// agent names are there already: else that is invalid_request too.
func (r *Registry) Put(ctx context.Context, d Draft, expected uint32) (Agent, error) {
	const op = "agents.Put"
	if err := d.agent.validate(); err != nil {
		return Agent{}, fault.New(fault.InvalidRequest, op, fault.Detail(fields(err)))
	}
	if err := r.fits(d.agent); err != nil {
		return Agent{}, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail(fields(err)))
	}
	n, err := r.store.Newest(ctx, d.agent.ID)
	if err != nil {
		return Agent{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	switch {
	case n.Version > 0 && n.Digest == d.digest && (n.Version == expected || n.Version == expected+1):
		return r.At(ctx, n.ID, n.Version)
	case n.Version != expected:
		return Agent{}, stale(op, n.Version)
	}
	if expected == 0 {
		if err := r.room(ctx); err != nil {
			return Agent{}, err
		}
	}
	if err := r.keepNamed(ctx, d.agent); err != nil {
		return Agent{}, err
	}
	made, err := r.insert(ctx, d, expected+1)
	switch {
	case err != nil:
		return Agent{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	case made:
		r.logger.InfoContext(ctx, "agent has a new version", "agent", d.agent.ID, "version", expected+1)
		return r.At(ctx, d.agent.ID, expected+1)
	}
	if n, err = r.store.Newest(ctx, d.agent.ID); err != nil { // another one was first
		return Agent{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	if n.Digest == d.digest && n.Version == expected+1 {
		return r.At(ctx, n.ID, n.Version)
	}
	return Agent{}, stale(op, n.Version)
}

func stale(op string, newest uint32) error {
	return fault.New(fault.RevisionConflict, op,
		fault.Detail(fmt.Sprintf("expected_version: the newest is %d; read the agent again and change that", newest)))
}

// room is a bound for people: two that are made at once may both be the last.
func (r *Registry) room(ctx context.Context) error {
	all, err := r.store.List(ctx, maxAgents)
	if err != nil {
		return fault.Wrap(err, fault.DependencyUnavailable, "agents.Put")
	}
	if len(all) >= maxAgents {
		return fault.New(fault.Capacity, "agents.Put", fault.Detail("agent_id: there are 1000 agents, and no more can be made"))
	}
	return nil
}

func (r *Registry) insert(ctx context.Context, d Draft, version uint32) (bool, error) {
	d.agent.Version = version
	body, err := json.Marshal(d.agent)
	if err != nil {
		return false, err
	}
	return r.store.Insert(ctx, Record{ID: d.agent.ID, Version: version, Digest: d.digest, Body: body, At: r.now().UTC()})
}

// Seed makes versions of the agents of an operator's file where they are missing.
// An entry without a version is the next one if no version was made of the same
// content yet; one that names its version must not be another content than what
// stands under it. What was changed by Put since stays. What the agents name is stored
// before, and kept after. The error names every entry that is wrong.
func (r *Registry) Seed(ctx context.Context, file []Draft) error {
	var errs []error
	for i, d := range file {
		if err := r.seed(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("agents[%d]: %w", i, err))
		}
		if err := r.fits(d.agent); err != nil {
			// Its runs say so too; an older version may be there for its conversations.
			r.logger.WarnContext(ctx, "an agent of the file does not fit its harness", "agent", d.agent.ID, "fields", fields(err))
		}
	}
	return errors.Join(errs...)
}

func (r *Registry) seed(ctx context.Context, d Draft) error {
	if err := r.seedVersion(ctx, d); err != nil {
		return err
	}
	return r.keep(ctx, d)
}

// seedVersion leaves the version of the draft in the store.
func (r *Registry) seedVersion(ctx context.Context, d Draft) error {
	for range maxRaces {
		there, err := r.store.Digests(ctx, d.agent.ID)
		if err != nil {
			return err
		}
		if _, same := there[d.digest]; same && d.agent.Version == 0 {
			return nil
		}
		newest := uint32(0)
		for _, v := range there {
			newest = max(newest, v)
		}
		version := d.agent.Version
		if version == 0 {
			version = newest + 1
		}
		made := false
		if version > newest {
			if err := r.put(ctx, d); err != nil {
				return err
			}
			if made, err = r.insert(ctx, d, version); err != nil {
				return err
			}
		}
		if made {
			r.logger.InfoContext(ctx, "agent has a new version, of the file", "agent", d.agent.ID, "version", version)
			return nil
		}
		if d.agent.Version == 0 {
			continue // another replica was first; it may have seeded the same
		}
		stands, err := r.store.Load(ctx, d.agent.ID, version)
		switch {
		case err == nil && stands.Digest == d.digest:
			return nil
		case err == nil || errors.Is(err, ErrNoVersion):
			return fmt.Errorf("version %d of %q was made of another content, or is older than what stands, and versions never change: "+
				"name a version above %d, or leave version out and the next one is taken", version, d.agent.ID, newest)
		default:
			return err
		}
	}
	return fmt.Errorf("%q is changed by others all the time", d.agent.ID)
}

// fields is an error with one line for each field as one line.
func fields(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// digestOf is that of a document that means the same however it is written.
func digestOf(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
