package scale

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// eventsPage is how many events are read at once.
const eventsPage = 500

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func look(ctx context.Context, s *stack.Stack, all []*conversation, f finder) error {
	user, err := s.Client(ctx, stack.User)
	if err != nil {
		return err
	}
	byBinding := make(map[string]*conversation, len(all))
	for _, v := range all {
		byBinding[v.bindingID] = v
		events, ended, err := user.Log(ctx, v.runID, eventsPage)
		if err != nil || !ended {
			return fmt.Errorf("%s: log: ended %v, %w", v.name, ended, err)
		}
		for _, e := range events {
			f.in("the events of "+v.name, string(e.Raw), v)
		}
		if err := f.process(v); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	if err := f.states(ctx, s, byBinding); err != nil {
		return err
	}
	return f.logs(filepath.Join(s.Data, "logs"))
}

// process reads what can be seen of a worker: its command line, environment and
// files, and its memory.
func (f finder) process(v *conversation) error {
	if v.pid == 0 {
		return errors.New("has no sandbox")
	}
	dir := filepath.Join("/proc", strconv.Itoa(v.pid))
	for _, name := range []string{"cmdline", "environ"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		f.in(name+" of the worker of "+v.name, string(raw), nil) // not even its own
	}
	if err := f.tree(filepath.Join(dir, "root", "workspace"), v); err != nil {
		return err
	}
	return procs.Memory(v.pid, canaryLength, func(part []byte) { f.in("the memory of the worker of "+v.name, string(part), v) })
}

// states reads the committed snapshots and memory.
func (f finder) states(ctx context.Context, s *stack.Stack, byBinding map[string]*conversation) error {
	stores, err := filepath.Glob(filepath.Join(s.Data, "*.db"))
	if err != nil {
		return err
	}
	deeper, err := filepath.Glob(filepath.Join(s.Data, "*", "*.db"))
	if err != nil {
		return err
	}
	seen := 0
	for _, path := range append(stores, deeper...) {
		n, err := f.snapshots(ctx, path, byBinding)
		if err != nil {
			return err
		}
		seen += n
	}
	if seen != len(byBinding) {
		return fmt.Errorf("%d snapshots of %d conversations", seen, len(byBinding))
	}
	return nil
}

func (f finder) snapshots(ctx context.Context, path string, byBinding map[string]*conversation) (n int, err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var there int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE name = 'thread_snapshots'`).Scan(&there)
	if err != nil || there == 0 {
		return 0, err
	}
	rows, err := db.QueryContext(ctx, `SELECT binding_id, payload FROM thread_snapshots`)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id string
		var payload []byte
		if err := rows.Scan(&id, &payload); err != nil {
			return n, err
		}
		n++
		f.in("a snapshot of binding "+id, string(payload), byBinding[id])
	}
	return n, rows.Err()
}

// logs reads all that the services and workers have logged, where nobody's canary
// belongs.
func (f finder) logs(dir string) error { return f.tree(dir, nil) }

func (f finder) tree(dir string, owner *conversation) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := root.ReadFile(path)
		if err != nil {
			return err
		}
		f.in(filepath.Join(dir, path), string(raw), owner)
		return nil
	})
}
