package catalogue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/delegate"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
)

// maxListed bounds the schemas of one list, in bytes: what does not fit into an
// answer is unavailable rather than an error for everything.
const maxListed = 3 << 20

// Catalogue has the tools of all servers. It is safe for concurrent use.
type Catalogue struct {
	servers     []*server
	tools       map[string]*Tool
	byNamespace map[string][]*Tool
}

// Options of a Catalogue.
type Options struct {
	Logger *slog.Logger
	// BackOff is the first pause before a server is started again; zero is
	// DefaultBackOff.
	BackOff time.Duration
	// Worlds isolate servers over stdio; required where there is one.
	Worlds *mcpstdio.Worlds
	// Runs starts runs of other agents, for builtin.delegate; nil has no such tool.
	Runs delegate.Runs
}

// New makes a catalogue from a configuration; Run starts its servers.
func New(cfg Config, o Options) (*Catalogue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if o.BackOff <= 0 {
		o.BackOff = DefaultBackOff
	}
	c := &Catalogue{tools: make(map[string]*Tool), byNamespace: make(map[string][]*Tool)}
	slots := map[int]bool{}
	for _, sc := range cfg.Servers {
		conn, err := newConnector(sc, slotOf(sc.Namespace, slots), o.Worlds)
		if err == nil {
			err = c.add(sc, conn, o)
		}
		if err != nil {
			return nil, fmt.Errorf("catalogue: %s: %w", sc.Namespace, err)
		}
	}
	if err := c.addBuiltin(cfg.Builtin, o); err != nil {
		return nil, err
	}
	c.name()
	return c, nil
}

// slotOf gives a namespace a place among the ids of servers that stays the same
// when further servers are added at the end: their files belong to it.
func slotOf(namespace string, taken map[int]bool) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace)) // returns nil
	slot := int(h.Sum32() % mcpstdio.Slots)
	for taken[slot] { // there are fewer servers than slots
		slot = (slot + 1) % mcpstdio.Slots
	}
	taken[slot] = true
	return slot
}

// add adds a server and its tools.
func (c *Catalogue) add(sc Server, conn connector, o Options) (err error) {
	s := &server{
		cfg: sc, connector: conn, turns: newTurns(sc.Limits), backOff: o.BackOff, tried: make(chan struct{}), doubt: make(chan struct{}, 1),
		logger: o.Logger.With("namespace", sc.Namespace),
	}
	if over, ok := conn.(*overHTTP); ok && sc.perSubject() {
		if s.subjects, err = over.subjects(); err != nil {
			return err
		}
	}
	for _, name := range sc.Tools {
		t := newTool(s, name)
		s.tools = append(s.tools, t)
		c.tools[t.id] = t
	}
	c.servers = append(c.servers, s)
	c.byNamespace[sc.Namespace] = append(c.byNamespace[sc.Namespace], s.tools...)
	return nil
}

// name gives the tools their offered names, in the order of the configuration.
func (c *Catalogue) name() {
	var ids []string
	for _, s := range c.servers {
		for _, t := range s.tools {
			ids = append(ids, t.id)
		}
	}
	for id, name := range OfferedNames(ids) {
		c.tools[id].offered = name
	}
}

// Run runs all servers until ctx ends and they have ended.
func (c *Catalogue) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range c.servers {
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
}

// Ready says whether every server was started once, with or without success: a
// broken server holds nothing up.
func (c *Catalogue) Ready(context.Context) error {
	for _, s := range c.servers {
		select {
		case <-s.tried:
		default:
			return errors.New("catalogue: a tool server is being started for the first time")
		}
	}
	return nil
}

// Tool implements call.Tools.
func (c *Catalogue) Tool(id string) (call.Tool, bool) {
	t, ok := c.tools[id]
	if !ok {
		return nil, false // not a nil *Tool in the interface
	}
	return t, true
}

// Descriptor is what a harness may know of a tool.
type Descriptor struct {
	ID, OfferedName string
	// Description comes from the server: bounded and cleaned, and still nobody's
	// word.
	Description string
	// InputSchema is JSON; the caller must not change it.
	InputSchema json.RawMessage
	ReadOnly    bool
	// ApprovalRequired says that a call is refused that nobody has approved.
	ApprovalRequired bool
	// Risk is the operator's class: low, medium or high.
	Risk string
	// Delegates says that a call lets another agent work.
	Delegates bool
}

// Unavailable is a tool that cannot be offered now.
type Unavailable struct {
	ID string
	// Code is tool_unavailable, or tool_not_allowed for what the operator did not
	// name.
	Code fault.Code
}

// List describes tools: by exact id, or all of a namespace by "namespace.*". The
// order is that of ids, and within a namespace that of the configuration; a tool
// that is asked for twice is described once.
func (c *Catalogue) List(ids []string) ([]Descriptor, []Unavailable) {
	var found []Descriptor
	var missing []Unavailable
	seen := map[string]bool{}
	size := 0
	for _, id := range ids {
		tools := c.named(id)
		if len(tools) == 0 && !seen[id] {
			seen[id] = true
			missing = append(missing, Unavailable{id, fault.ToolNotAllowed})
		}
		for _, t := range tools {
			if seen[t.id] {
				continue
			}
			seen[t.id] = true
			d := t.definition.Load()
			if d == nil || t.server.offers(t) == nil || size+len(d.schema.JSON()) > maxListed {
				missing = append(missing, Unavailable{t.id, fault.ToolUnavailable})
				continue
			}
			size += len(d.schema.JSON()) + len(d.description)
			found = append(found, Descriptor{t.id, t.offered, d.description, d.schema.JSON(), t.readOnly, t.approval, t.risk, t.delegates()})
		}
	}
	return found, missing
}

// delegates says that the tool is builtin.delegate.
func (t *Tool) delegates() bool { return t.id == toolID(namespaceBuiltin, delegate.Tool) }

func (c *Catalogue) named(id string) []*Tool {
	if namespace, all := strings.CutSuffix(id, ".*"); all {
		return c.byNamespace[namespace]
	}
	if t, ok := c.tools[id]; ok {
		return []*Tool{t}
	}
	return nil
}
