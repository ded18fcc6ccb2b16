//go:build linux

package cgroup

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHierarchies(t *testing.T) {
	const v1 = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 /box /sys/fs/cgroup/my\040pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
`
	for name, c := range map[string]struct {
		mounts, groups string
		want           []hierarchy
	}{
		"version 1": {v1, "9:name=systemd:/s\n8:pids:/box/a:b\n4:memory:/some/where\n1:cpu,cpuacct:/\n", []hierarchy{
			{dir: "/sys/fs/cgroup/cpu,cpuacct", controllers: []Controller{CPU}},
			{dir: "/sys/fs/cgroup/memory/some/where", controllers: []Controller{Memory}},
			{dir: "/sys/fs/cgroup/my pids/a:b", controllers: []Controller{PIDs}},
		}},
		"version 2": {
			"31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", "0::/user.slice/a.scope\n",
			[]hierarchy{{dir: "/sys/fs/cgroup/user.slice/a.scope", unified: true, controllers: Controllers()}},
		},
		"a group outside of what is mounted": {
			"31 23 0:28 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/elsewhere\n",
			[]hierarchy{{dir: "/sys/fs/cgroup", unified: true, controllers: Controllers()}},
		},
		"a namespace that hides the way up": {
			"31 23 0:28 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../x\n",
			[]hierarchy{{dir: "/sys/fs/cgroup", unified: true, controllers: Controllers()}},
		},
		"none": {"22 1 8:1 / / rw - ext4 /dev/sda rw\nnonsense\n", "0::/\n", nil},
	} {
		got, err := parse(strings.NewReader(c.mounts), strings.NewReader(c.groups))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same := func(a, b hierarchy) bool {
			return a.dir == b.dir && a.unified == b.unified && slices.Equal(a.controllers, b.controllers)
		}
		if !slices.EqualFunc(got, c.want, same) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if _, err := parse(strings.NewReader(v1), strings.NewReader("nonsense\n")); err == nil {
		t.Error("took nonsense for groups")
	}
}

func FuzzHierarchies(f *testing.F) {
	f.Add("39 31 0:36 /b /p\\040p rw - cgroup cgroup rw,pids\n", "8:pids:/b/a\n")
	f.Add("31 23 0:28 / /c rw - cgroup2 c rw\n", "0::/x\n")
	f.Fuzz(func(t *testing.T, mounts, groups string) {
		found, err := parse(strings.NewReader(mounts), strings.NewReader(groups))
		if err != nil {
			return
		}
		for _, h := range found {
			if len(h.controllers) == 0 || !strings.HasPrefix(h.dir, "/") && strings.HasPrefix(mounts, "1 1 1:1 / /") {
				t.Errorf("%+v", h)
			}
		}
	})
}

// tree is a group of version 2 as files: what is written to it is what can be
// read, and nothing happens.
func tree(t *testing.T, files map[string]string) hierarchy {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return hierarchy{dir: dir, unified: true, controllers: Controllers()}
}

// The values of version 2 have other names and forms, and this machine may not
// have it.
func TestTheFormsOfVersion2(t *testing.T) {
	h := tree(t, map[string]string{
		"memory.max": "", "memory.swap.max": "", "memory.oom.group": "", "pids.max": "", "cpu.max": "",
		"memory.events": "low 0\nhigh 1\nmax 7\noom 3\noom_kill 2\n", "pids.events": "max 5\n", "cpu.stat": "usage_usec 9\nnr_throttled 4\nthrottled_usec 8\n",
	})
	l := Limits{Memory: 1 << 20, PIDs: 9, CPUs: 1.5}
	for _, c := range Controllers() {
		if err := l.set(h.dir, true, c); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{
		"memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "", "pids.max": "9", "cpu.max": "150000 100000",
	} {
		if got, err := os.ReadFile(filepath.Join(h.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	g := &Group{places: []place{{h.dir, true, h.controllers}}}
	if err := g.EndOnOOM(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(h.dir, "memory.oom.group")); err != nil || string(got) != "1" {
		t.Errorf("one killed is all killed: %q, %v", got, err)
	}
	if got, want := counters(t, g), (Counters{OOMKills: 2, ForksRefused: 5, Throttled: 4}); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	// Version 2 without the processor, in a group that may not give anything on.
	h := tree(t, map[string]string{"cgroup.controllers": "cpuset memory pids\n"})
	m, err := open(t.Context(), []hierarchy{h})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, missing := range m.Missing() {
		got = append(got, missing.String())
	}
	all := strings.Join(got, "\n")
	if len(got) != 3 || !strings.Contains(all, "cgroup memory") || !strings.Contains(all, "cgroup pids") || !strings.Contains(all, "cgroup cpu (no hierarchy") {
		t.Errorf("missing:\n%s", all)
	}
	g, err := m.Create("x", Limits{Memory: 1 << 20, PIDs: 1, CPUs: 1})
	if err != nil || len(g.Dirs()) != 0 {
		t.Errorf("a group without controllers: %v, %v", g, err)
	}
	for _, c := range []struct {
		err  error
		says string
	}{
		{errNowhere, "mount it"},
		{fs.ErrPermission, "delegated"},
		{&fs.PathError{Err: unix.EBUSY}, "subtree_control"},
		{&fs.PathError{Err: unix.EROFS}, "writable"},
	} {
		if said := (Missing{CPU, c.err}).String(); !strings.Contains(said, c.says) {
			t.Errorf("%v: %s", c.err, said)
		}
	}
}

func TestAHierarchyThatIsMountedTwiceIsUsedOnce(t *testing.T) {
	found, err := discover()
	if err != nil {
		t.Fatal(err)
	}
	m, err := open(t.Context(), append(found, found...))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	seen := map[Controller]int{}
	for _, o := range m.hierarchies {
		for _, c := range o.controllers {
			if seen[c]++; seen[c] > 1 {
				t.Errorf("%s is used twice", c)
			}
		}
	}
}
