package sqlitestore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/fence"
)

// childFile names the file on which this test binary, run again, is one of
// several processes.
const childFile = "COFFERDAM_TEST_SQLITE_CHILD"

const generations = 40

// child races for each generation of hs_race and tells which it won; then it
// tries an effect that all processes try.
func child(path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := sqlitestore.Open(ctx, path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // all at once
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = errors.Join(compete(ctx, s), s.Close())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func compete(ctx context.Context, s *sqlitestore.Store) error {
	w := binding.NewWriter(s, time.Now)
	c, err := w.Committed(ctx, "hs_effect")
	if err != nil {
		return err
	}
	g, err := fence.NewGuard(w, time.Now).Admit(ctx, fence.Envelope{
		BindingID: "hs_effect", Epoch: c.Epoch, Generation: c.Generation, RunID: c.RunID, Deadline: time.Now().Add(time.Minute),
	})
	if err != nil {
		return err
	}
	effects := binding.NewEffects(w)
	for i := range uint32(generations) {
		_, err := s.Update(ctx, "hs_race", binding.Filter{Generation: &i}, func(r *binding.Record) error {
			r.Generation++
			return nil
		})
		switch {
		case err == nil:
			fmt.Println("won", i)
		case !errors.Is(err, binding.ErrFenced):
			return err
		}
		if i%10 != 0 {
			continue
		}
		key := fmt.Sprintf("k%d", i)
		_, err = effects.Do(ctx, g, binding.Effect{Key: key, Kind: "tool", ArgsDigest: "a"}, func(context.Context) ([]byte, error) {
			fmt.Println("did", key)
			return []byte("x"), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestProcesses: of several processes that make the same conditional write, one
// wins, and an effect that all of them are asked for happens once.
func TestProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	s := opened(t, path)
	w := binding.NewWriter(s, time.Now)
	insert(t, s, "hs_race")
	insert(t, s, "hs_effect")
	if _, err := w.Replace(t.Context(), "hs_effect", 1, 0, func(uint32) string { return "claim" }, ""); err != nil {
		t.Fatal(err)
	}
	_, err := w.Start(t.Context(), binding.StartParams{BindingID: "hs_effect", RunID: "run_1", Epoch: 1, Deadline: time.Now().Add(time.Hour), Owner: "o"})
	if err != nil {
		t.Fatal(err)
	}

	const processes = 4
	var start []func()
	out := make([]bytes.Buffer, processes)
	var wg sync.WaitGroup
	for i := range processes {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childFile+"="+path)
		cmd.Stdout, cmd.Stderr = &out[i], os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		start = append(start, func() { _, _ = in.Write([]byte("go\n")) })
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	for _, s := range start {
		s()
	}
	wg.Wait()
	seen := make(map[string]int)
	winners := 0
	for i := range out {
		if strings.Contains(out[i].String(), "won") {
			winners++
		}
		for line := range strings.Lines(out[i].String()) {
			seen[strings.TrimSpace(line)]++
		}
	}
	for i := range generations {
		if n := seen[fmt.Sprint("won ", i)]; n != 1 {
			t.Errorf("generation %d has %d winners", i, n)
		}
		if n := seen[fmt.Sprint("did k", i)]; i%10 == 0 && n != 1 {
			t.Errorf("effect k%d happened %d times", i, n)
		}
	}
	if winners < 2 {
		t.Logf("only %d process won anything: they hardly met", winners)
	}
	if r, err := s.Load(t.Context(), "hs_race"); err != nil || r.Generation != generations {
		t.Fatalf("%+v, %v", r, err)
	}
}
