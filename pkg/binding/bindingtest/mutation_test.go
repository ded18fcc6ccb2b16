//go:build mutation

package bindingtest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutation is one way to get the writes wrong: the mutations of the contract's
// model, the texts that failed there, and what a back end can get wrong.
type mutation struct {
	name string
	// file in package binding, and what is replaced in it.
	file     string
	old, new string
	// where the tests are that must fail; ./bindingtest when empty.
	where string
}

func mutations() []mutation {
	const record = "func(r *Record) error { return r."
	return []mutation{
		{"M_GEN events", "append.go", "e.BindingID, f, " + record + "append", "e.BindingID, Filter{Epoch: f.Epoch, RunID: f.RunID}, " + record + "append", ""},
		{"events of another epoch and generation", "append.go", "e.BindingID, f, " + record + "append", "e.BindingID, Filter{RunID: f.RunID}, " + record + "append", ""},
		{"events of another run", "append.go", "e.BindingID, f, " + record + "append", "e.BindingID, Filter{Epoch: f.Epoch, Generation: f.Generation}, " + record + "append", ""},
		{"M_GENA admissions", "attempt.go", "c.env.BindingID, c.filter, " + record + "admit", "c.env.BindingID, Filter{RunID: c.filter.RunID}, " + record + "admit", ""},
		{"M_GENC heads", "head.go", "env.BindingID, f, " + record + "commitHead", "env.BindingID, Filter{RunID: f.RunID}, " + record + "commitHead", ""},
		{"end of another generation", "end.go", "env.BindingID, f, " + record + "setEnd", "env.BindingID, Filter{RunID: f.RunID}, " + record + "setEnd", ""},
		{"terminal of another generation", "end.go", "env.BindingID, f, func(r *Record) error {\n\t\t\terr := r.terminate", "env.BindingID, Filter{Epoch: f.Epoch}, func(r *Record) error {\n\t\t\terr := r.terminate", ""},
		{"beat of another generation", "own.go", "e.BindingID, f, " + record + "beat", "e.BindingID, Filter{RunID: f.RunID}, " + record + "beat", ""},
		{"M_NONCE", "lookup.go", "return b.Nonce == o.Nonce && b.First == o.First && slices", "return b.First == o.First || slices", ""},
		{"ASIS_BATCH", "lookup.go", "b.First == o.First && slices.EqualFunc", "b.First == o.First || b.Nonce == o.Nonce && slices.EqualFunc", ""},
		{"ASIS_AGAIN tail", "append.go", "case run.holds(b):\n\t\treturn errStands\n", "", ""},
		{"ASIS_AGAIN elsewhere", "append.go", "if run, _ := r.find(runID); run != nil && run.holds(b) {", "if run, _ := r.find(runID); run != nil && false {", ""},
		{"ASIS_AGAIN chunk", "append.go", "case len(chunks) == 1 && holds(chunks[0].Batches, b):\n\t\treturn nil\n", "case len(chunks) == 1:\n\t\treturn ErrFenced\n", ""},
		{"ASIS_END", "end.go", "run.push(b)\n\tr.retireRun(true)", "run.push(b)\n\tr.Run = nil", ""},
		{"ASIS_DOC-like: ending read, then started", "start.go", "case stands != nil:\n\t\t\t// Never", "case stands != nil && false:\n\t\t\t// Never", ""},
		{"M_REV", "start.go", "case r.Revision != revision:\n\t\treturn errMoved\n", "", ""},
		{"start beside ending", "start.go", "r.Run != nil || r.EndingRun() != nil", "r.Run != nil", ""},
		{"start in another epoch", "start.go", "case r.Epoch != p.Epoch:\n\t\treturn ErrFenced\n", "", ""},
		{"start leaves the revision", "start.go", "r.Run = &run\n\tr.Revision++", "r.Run = &run", ""},
		{"start without a nonce", "start.go", "r.Run.ID == run.ID && r.Run.Nonce == run.Nonce", "r.Run.ID == run.ID", ""},
		{"ASIS_CHUNK", "archive.go", "return r.trim(runID, stands)", "_ = stands; return r.trim(runID, ours)", ""},
		{"chunk not compared", "archive.go", " || !slices.EqualFunc(run.Tail[:n], c.Batches, Batch.same)", "", ""},
		{"M_END", "end.go", "case !r.Run.End.Open():\n\t\treturn errStands\n", "", ""},
		{"terminal disagrees", "end.go", "case run.End != e:\n\t\treturn ErrEndDisagrees\n", "", ""},
		{"terminal before the end", "end.go", "case run.End.Open():\n\t\treturn ErrEndOpen\n\tcase run.End != e:\n\t\treturn ErrEndDisagrees\n", "", ""},
		{"terminal before the revocation", "end.go", "if err := w.revoked(ctx, env.BindingID, env.RunID); err != nil {", "if err := error(nil); err != nil {", ""},
		{"owner of events", "append.go", "run == nil || run.Owner != owner", "run == nil", ""},
		{"owner of the terminal", "end.go", "run == nil || run.Owner != owner || ", "run == nil || ", ""},
		{"owner of beats", "own.go", "r.Run == nil || r.Run.Owner != owner", "r.Run == nil", ""},
		{"M_INSERT and ASIS_ROW: permission by key", "attempt.go", "case stands.Nonce != nonce:", "case stands.State != RowDispatched:", ""},
		{"a lost insert begins", "attempt.go", "c.record(ctx, key, nonce, RowNotDispatched, nil)\n\t\treturn Outcome{}, false, err\n", "out, err = c.dispatch(ctx, key, nonce, from.Add(DispatchWindow))\n\t\treturn out, false, err\n", ""},
		{"admit after the end", "attempt.go", "case !run.End.Open():\n\t\treturn ErrEnded\n", "", ""},
		{"admissions not counted", "attempt.go", "run.Admissions++\n", "", ""},
		{"no bound of admitted effects", "attempt.go", "len(run.Admitted) >= MaxAdmitted, run.Admissions", "false, run.Admissions", ""},
		{"key leaves without an outcome", "attempt.go", "if done {\n\t\tc.takeOut", "if true {\n\t\tc.takeOut", ""},
		{"success without a record", "attempt.go", "case !c.record(ctx, key, nonce, RowConcluded, body):", "case !c.record(ctx, key, nonce, RowConcluded, body) && false:", ""},
		{"not recorded for a caller that has gone", "attempt.go", "ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordBound)\n\tdefer cancel()\n\tstore", "ctx, cancel := context.WithTimeout(ctx, recordBound)\n\tdefer cancel()\n\tstore", ""},
		{"unknown taken for not begun", "attempt.go", "case err != nil:\n\t\treturn Outcome{}, unknown(err)\n", "case err != nil:\n\t\tc.record(ctx, key, nonce, RowNotDispatched, nil)\n\t\treturn Outcome{}, unknown(err)\n", ""},
		{"the window is not looked at", "attempt.go", "err != nil || !time.Now().Before(by)", "err != nil", "."},
		{"the window begins after the insert", "attempt.go", "from.Add(DispatchWindow))\n\treturn out, false", "func() time.Time { _ = from; return time.Now() }().Add(DispatchWindow))\n\treturn out, false", "."},
		{"an ended caller is served", "attempt.go", "if err := ctx.Err(); err != nil || !time", "if err := error(nil); err != nil || !time", "."},
		{"other arguments", "duplicate.go", " || row.ArgsDigest != c.eff.ArgsDigest", "", ""},
		{"other kind", "duplicate.go", "row.Kind != c.eff.Kind || ", "", ""},
		{"a replaced worker is answered", "duplicate.go", "if err := c.current(ctx); err != nil {\n\t\treturn Outcome{}, false, err\n\t}\n\tswitch", "switch", ""},
		{"every dead effect is repeated", "duplicate.go", "return Outcome{}, c.eff.Repeatable, unknown(errDead)", "return Outcome{}, true, unknown(errDead)", ""},
		{"a head past the log", "head.go", "case run.EventHead <= c.LastSequence:\n\t\treturn errBehind\n", "", ""},
		{"a head one past the log", "head.go", "run.EventHead <= c.LastSequence", "run.EventHead < c.LastSequence", ""},
		{"a head of any revision", "head.go", "case r.Head.Revision != c.ExpectedRevision:\n\t\treturn fault.New(fault.RevisionConflict, \"binding.CommitHead\")\n", "", ""},
		{"a head after any end", "head.go", "case !run.End.Open() && run.End.Kind != EndCancelling:\n\t\treturn ErrFenced\n", "", ""},
		{"ASIS_INTR", "head.go", "case !run.End.Open():\n\tcase c.Interrupt != nil:", "case !run.End.Open() && c.Interrupt == nil:\n\tcase c.Interrupt != nil:", ""},
		{"a head overrules a cancel", "head.go", "switch {\n\tcase !run.End.Open():\n\tcase c", "switch {\n\tcase c", ""},
		{"any repeat of a head", "head.go", "if !r.sameHead(run.End, c) {", "if false {", ""},
		{"a repeat after the run has gone", "head.go", "case errors.Is(err, ErrFenced):\n\t\t\treturn w.committedHead(ctx, env, c)\n", "", ""},
		{"ASIS_CARRY admitted", "lease.go", "run.Admissions > 0", "len(run.Admitted) > 0", ""},
		{"ASIS_CARRY end", "lease.go", " || !run.End.Open()", "", ""},
		{"carried over with events", "lease.go", "run.EventHead > 0 || ", "", ""},
		{"M_CLEAR", "lease.go", "r.retireRun(false)\n\tr.retireLease()\n\tr.Epoch++", "r.Run = nil\n\tr.retireLease()\n\tr.Epoch++", ""},
		{"clear drops the lease", "lease.go", "r.retireLease()\n\tr.Epoch++", "r.Lease = nil\n\tr.Epoch++", ""},
		{"clear keeps the head", "lease.go", "r.Head = Head{}\n", "", ""},
		{"clear keeps the interrupt", "lease.go", "r.Interrupt, r.Resumed = nil, nil\n", "", ""},
		{"clear keeps the generation", "lease.go", "r.Epoch++\n\tr.Generation++", "r.Epoch++", ""},
		{"ASIS_CLEAR", "lookup.go", "if run.End.Open() {\n\t\trun.End = End{Kind: EndLost}\n\t}\n", "", ""},
		{"ASIS_CONC", "conclude.go", "case entry.Terminal:\n\t\treturn errStands\n", "", ""},
		{"M_REVOKE", "conclude.go", "for _, key := range e.Run.Admitted {\n\t\trow", "for _, key := range []string(nil) {\n\t\trow", ""},
		{"revoke while effects are admitted", "conclude.go", "if e.Run.End.Open() {\n\t\treturn \"\", fail(ctx, ErrEndOpen, op)\n\t}\n", "", ""},
		{"a dispatched effect is none", "conclude.go", "case RowDispatched:\n\t\t\treturn SideEffectsPossible\n", "case RowDispatched:\n", ""},
		{"dropped without a terminal", "conclude.go", "entry == nil || !entry.Terminal || len", "entry == nil || len", ""},
		{"dropped with a tail", "conclude.go", " || len(run.Tail) > 0", "", ""},
		{"dropped without a document", "conclude.go", "case notFound(err):\n\t\treturn fail(ctx, ErrNotConcluded, op)\n", "case notFound(err):\n", ""},
		{"another binding's document", "conclude.go", "if err == nil && d.BindingID != bindingID {", "if false {", ""},
		{"M_RESUME", "resume.go", "\tr.Interrupt = nil\n\tr.Revision++\n", "\tr.Revision++\n", ""},
		{"resume of another revision", "resume.go", "case i.Revision != p.Revision:\n\t\treturn fault.New(fault.InterruptConflict, \"binding.Resume\")\n", "", ""},
		{"the decision is not kept", "resume.go", "r.Resumed = &Resumed", "_ = &Resumed", ""},
		{"any decision again", "resume.go", "if c.DecisionHash != p.DecisionHash || c.RunID != run.ID {", "if false {", ""},
		{"taken over at any beat", "own.go", " || run.OwnerBeat != beat", "", ""},
		{"taken over from anybody", "own.go", " || run.Owner != owner || run", " || run", ""},
		{"the first stream is taken again", "stream.go", " || run.StreamNonce != \"\"", "", ""},
		{"a first stream whose answer was lost", "stream.go", "\tcase run.StreamNonce == nonce:\n\t\treturn errStands\n", "", ""},
		{"the tail grows", "lookup.go", "len(r.Tail) == 0 || r.tailBytes()+b.Bytes() <= MaxTailBytes", "true", ""},
		{"nothing is settled", "writer.go", "tries = 4", "tries = 1", ""},
		{"page skips", "read.go", "if seq != p.Next || seq >= end {", "if seq < p.Next || seq >= end {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tif seq == 1 {", ""},

		{"no version in the write", "bindingtest/memory.go", "if w.m.records[w.id].version != w.was.version {", "if false {", ""},
		{"no filter", "sqlitestore/records.go", "if !was.matches(f) {", "f = binding.Filter{}\n\t\tif false {", "./sqlitestore"},
		{"runs are not found", "sqlitestore/records.go", "if slices.Equal(before, after) {", "if slices.Equal(before, after) || true {", "./sqlitestore"},
		{"ended runs are found", "sqlitestore/records.go", "if _, err := t.exec(s.q[dropLiveRuns], bindingID); err != nil {\n\t\treturn err\n\t}\n", "", "./sqlitestore"},
		{"rows settle for anybody", "sqlitestore/queries.go", " AND nonce = ? AND state = 'dispatched'", " AND ? <> '' AND state = 'dispatched'", "./sqlitestore"},
		{"rows settle twice", "sqlitestore/queries.go", " AND nonce = ? AND state = 'dispatched'", " AND nonce = ?", "./sqlitestore"},
		{"rows are overwritten", "sqlitestore/queries.go", "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET nonce = excluded.nonce", "./sqlitestore"},
		{"chunks are overwritten", "sqlitestore/queries.go", "first, next, doc) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", "first, next, doc) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET doc = excluded.doc", "./sqlitestore"},
		{"documents are overwritten", "sqlitestore/queries.go", "binding_id, doc) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", "binding_id, doc) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET doc = excluded.doc", "./sqlitestore"},
		{"chunks from their beginning", "sqlitestore/queries.go", "run_id = ? AND next > ?", "run_id = ? AND first >= ?", "./sqlitestore"},
		{"busy stays", "sqlitestore/queries.go", "owner = ?, instance = ?, busy = ?, doc = ?", "owner = ?, instance = ?, busy = max(busy, ?), doc = ?", "./sqlitestore"},
		{"events are escaped", "sqlitestore/codec.go", "SetEscapeHTML(false)", "SetEscapeHTML(true)", "./sqlitestore"},
		{"reads before the lock", "../sqlstore/sqlstore.go", `connect(path, 1, "immediate"`, `connect(path, 8, "deferred"`, "./sqlitestore"},
		{"not synchronous", "../sqlstore/sqlstore.go", "synchronous(FULL)", "synchronous(NORMAL)", "./sqlitestore"},
	}
}

// goTest runs the tests that must find mistakes, not those that compare texts.
func goTest(t *testing.T, root, where string, more ...string) ([]byte, error) {
	t.Helper()
	args := append([]string{"test", "-vet=off", "-failfast", "-timeout=3m", "-skip=^TestDocs"}, more...)
	args = append(args, where)
	if where != "./sqlitestore" {
		args = append(args, "-rapid.nofailfile")
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	return cmd.CombinedOutput()
}

// TestMutations makes each mistake in turn, without touching a file, and wants
// the tests to find it. It takes some minutes: go test -tags mutation -run Mutations .
func TestMutations(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{".", "./bindingtest", "./sqlitestore"} {
		if out, err := goTest(t, root, where); err != nil {
			t.Fatalf("without a mistake: %v\n%s", err, out)
		}
	}
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			file := filepath.Join(root, m.file)
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(src), m.old); n != 1 {
				t.Fatalf("%s has the text %d times; the mutation must be brought up to date", m.file, n)
			}
			mutant := filepath.Join(t.TempDir(), "mutant.go")
			if err := os.WriteFile(mutant, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutant}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(t.TempDir(), "overlay.json")
			if err := os.WriteFile(list, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			where := m.where
			if where == "" {
				where = "./bindingtest"
			}
			out, err := goTest(t, root, where, "-overlay="+list)
			switch {
			case err == nil:
				t.Errorf("nothing fails:\n%s", out)
			case strings.Contains(string(out), "[build failed]"):
				t.Errorf("it does not compile:\n%s", out)
			default:
				for line := range strings.Lines(string(out)) {
					if strings.Contains(line, "--- FAIL") || strings.Contains(line, "panic:") {
						t.Log(strings.TrimSpace(line))
					}
				}
			}
		})
	}
}
