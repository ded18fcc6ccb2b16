package certify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// Config of a run.
type Config struct {
	// Command is the path of cofferdam; its services stand beside it.
	Command string
	// Folder of the stack: short, since sockets stand in it, and empty.
	Folder string
	// Profiles is a file of sandbox profiles, and Profile the name of one of them. Empty
	// is a profile without anything but Harness, "native" where that is empty too.
	Profiles, Profile, Harness string
	// Requirements that are checked; empty is all.
	Requirements []int
	// Bindings is how many work at once where that is what is tried; 0 is 4.
	Bindings int
	// AllowWeakIsolation starts although the machine lacks layers of isolation.
	AllowWeakIsolation bool
	// Out takes a line of JSON for each requirement and a closing one, Progress what is
	// for people.
	Out, Progress io.Writer
}

// replicas of the control plane that the stack has.
const replicas = 2

// spare is how many sandboxes there may be beside those that are asked for.
const spare = 64

// world is the stack and what is known of it.
type world struct {
	*stack.Stack

	cfg    Config
	target target
	phrase phrase
	// users are the clients of one subject, one for each replica.
	users    []*apiclient.Client
	operator *apiclient.Client
	// collector takes the spans of the services.
	collector *collector
}

// ErrNotCertified says that a requirement has not passed.
var ErrNotCertified = errors.New("not certified")

func (c Config) selected() ([]Requirement, error) {
	all := Requirements()
	if len(c.Requirements) == 0 {
		return all, nil
	}
	for _, n := range c.Requirements {
		if n < 1 || n > len(all) {
			return nil, fmt.Errorf("--requirements: %d: 1 to %d", n, len(all))
		}
	}
	return slices.DeleteFunc(all, func(r Requirement) bool { return !slices.Contains(c.Requirements, r.Number) }), nil
}

// Run checks the requirements. The error is [ErrNotCertified] where all was done that
// could be, and anything else where the stack could not be had.
func Run(ctx context.Context, cfg Config) (doc Document, err error) {
	if cfg.Bindings == 0 {
		cfg.Bindings = 4
	}
	selected, err := cfg.selected()
	if err != nil {
		return doc, err
	}
	w := &world{cfg: cfg}
	if w.target, err = cfg.describe(ctx); err != nil {
		return doc, err
	}
	w.phrase.steps = w.target.HarnessID == "scripted"
	if w.collector, err = newCollector(ctx); err != nil {
		return doc, err
	}
	defer func() {
		if failed := w.collector.close(); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	if err := w.open(ctx, "data"); err != nil {
		return doc, err
	}
	defer func() {
		if failed := w.Stop(context.WithoutCancel(ctx)); failed != nil {
			err = errors.Join(err, failed)
		}
	}()

	out := json.NewEncoder(cfg.Out)
	doc.Results = []Result{}
	for _, r := range selected {
		w.say("%2d %s ...", r.Number, r.Title)
		var l ledger
		r.check(ctx, w, &l)
		if err := ctx.Err(); err != nil {
			return doc, fmt.Errorf("interrupted at requirement %d: %w", r.Number, err)
		}
		result := l.result(r)
		doc.Results = append(doc.Results, result)
		w.say("   %s %s", result.Result, result.Reason)
		if err := out.Encode(result); err != nil {
			return doc, err
		}
	}
	if err := w.summary(ctx, &doc); err != nil {
		return doc, err
	}
	if err := out.Encode(doc.Summary); err != nil {
		return doc, err
	}
	if !doc.Summary.Certified {
		return doc, ErrNotCertified
	}
	return doc, nil
}

func (w *world) say(format string, args ...any) {
	_, _ = fmt.Fprintf(w.cfg.Progress, format+"\n", args...) // nobody is left to tell
}

// open starts a stack whose data go to a folder of that name.
func (w *world) open(ctx context.Context, data string, more ...string) error {
	flags, err := w.target.configure(w.cfg.Folder)
	if err != nil {
		return err
	}
	flags = append(flags, "--replicas", fmt.Sprint(replicas), "--take-over-after", "5s", "--log-level", "debug",
		"--max-sandboxes", fmt.Sprint(w.cfg.Bindings+spare), "--otlp-endpoint", w.collector.endpoint())
	if w.cfg.AllowWeakIsolation {
		flags = append(flags, "--allow-weak-isolation")
	}
	flags = append(flags, more...)
	w.say("starting a stack for the harness %s, adapter %s ...", w.target.HarnessID, w.target.AdapterVersion)
	if w.Stack, err = stack.Up(ctx, w.cfg.Command, filepath.Join(w.cfg.Folder, data), flags...); err != nil {
		return err
	}
	if err = w.connect(ctx); err != nil {
		return errors.Join(err, w.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (w *world) connect(ctx context.Context) (err error) {
	if len(w.Replicas) != replicas {
		return fmt.Errorf("%d replicas answer, want %d", len(w.Replicas), replicas)
	}
	for i := range w.Replicas {
		c, err := w.ReplicaClient(ctx, i, stack.User)
		if err != nil {
			return err
		}
		w.users = append(w.users, c)
	}
	w.operator, err = w.OperatorClient(ctx, stack.Operator)
	return err
}

// summary tells whom the results are of: what runs, not what was asked for.
func (w *world) summary(ctx context.Context, doc *Document) error {
	s := Summary{HarnessID: w.target.HarnessID, AdapterVersion: w.target.AdapterVersion, ProtocolVersion: ProtocolVersion, Date: time.Now().UTC().Truncate(time.Second)}
	s.Profile, _ = w.target.profile["name"].(string)
	c := w.talk(plain)
	r, err := c.begin(ctx, say("here"))
	if err != nil {
		return err
	}
	_, b, err := w.seat(ctx, r.BindingID)
	if err != nil {
		return err
	}
	if _, err := w.end(ctx, 0, r); err != nil {
		return err
	}
	s.ImageDigest = b.Lease.ImageDigest
	if b.HarnessID != s.HarnessID {
		return fmt.Errorf("the binding is of the harness %s, and the worker describes %s", b.HarnessID, s.HarnessID)
	}
	s.summarize(doc.Results)
	doc.Summary = s
	return nil
}

// Write writes the report to a file.
func (d Document) Write(path string) error {
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
