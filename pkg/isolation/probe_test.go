//go:build linux

package isolation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/pkg/process"
)

// Probe names exactly what a machine does not allow, and what to do about it. The machine is this one with some system
// calls refused.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	needs(t, isolation.Layers()...)
	const root, nobody = 0, 65534
	for name, tc := range map[string]struct {
		user   uint32
		refuse []string
		want   []isolation.Layer
	}{
		"nothing":             {root, nil, nil},
		"no root":             {nobody, nil, []isolation.Layer{isolation.UID}},
		"no landlock":         {root, []string{"landlock_create_ruleset"}, []isolation.Layer{isolation.Landlock}},
		"no limits":           {root, []string{"prlimit64"}, []isolation.Layer{isolation.ResourceLimits}},
		"no mounts":           {root, []string{"move_mount"}, []isolation.Layer{isolation.MountNamespace}},
		"no network":          {root, []string{clone(unix.CLONE_NEWNET)}, []isolation.Layer{isolation.NetworkNamespace}},
		"no ipc":              {root, []string{clone(unix.CLONE_NEWIPC)}, []isolation.Layer{isolation.IPCNamespace}},
		"no uts":              {root, []string{clone(unix.CLONE_NEWUTS)}, []isolation.Layer{isolation.UTSNamespace}},
		"no control groups":   {root, []string{"unshare:" + strconv.Itoa(unix.CLONE_NEWCGROUP)}, []isolation.Layer{isolation.CgroupNamespace}},
		"no pid":              {root, []string{clone(unix.CLONE_NEWPID)}, []isolation.Layer{isolation.PIDNamespace}},
		"neither net nor pid": {root, []string{clone(unix.CLONE_NEWNET | unix.CLONE_NEWPID)}, []isolation.Layer{isolation.NetworkNamespace, isolation.PIDNamespace}},
		"no user namespaces":  {root, []string{clone(unix.CLONE_NEWUSER)}, []isolation.Layer{isolation.UserNamespace}},
		"neither": {nobody, []string{clone(unix.CLONE_NEWUSER)}, []isolation.Layer{
			isolation.UID, isolation.UserNamespace, isolation.PIDNamespace, isolation.MountNamespace, isolation.NetworkNamespace,
			isolation.IPCNamespace, isolation.UTSNamespace, isolation.CgroupNamespace,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			id := strconv.Itoa(int(nextID()))
			p, err := process.Start(t.Context(), process.Spec{
				Path: intruder, Args: append([]string{"prober", id}, tc.refuse...), Stdout: &out, Stderr: t.Output(), Dir: "/",
				Attr: func(a *syscall.SysProcAttr) {
					if tc.user != root {
						a.Credential = &syscall.Credential{Uid: tc.user, Gid: tc.user}
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			_, list, ok := strings.Cut(out.String(), "reached ")
			var found []isolation.Missing
			if err := json.Unmarshal([]byte(list), &found); err != nil || !ok {
				t.Fatalf("%q, %v", out.String(), err)
			}
			slices.Sort(tc.want)
			got := isolation.LayersOf(found)
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("missing %v, want %v", found, tc.want)
			}
			for _, m := range found {
				if m.Reason == "" || m.Remedy == "" {
					t.Errorf("%+v helps nobody", m)
				}
			}
		})
	}
}

func clone(flag int) string { return "clone:" + strconv.Itoa(flag) }

// A sandbox of somebody who is not root has every layer but the ids.
func TestWithoutRoot(t *testing.T) {
	needs(t, isolation.UserNamespace)
	spec := nested("agent", "", "facts")
	spec.Without = []isolation.Layer{isolation.UID}
	order, err := json.Marshal(map[string]any{"Spec": spec, "FirstID": 0})
	if err != nil {
		t.Fatal(err)
	}
	in, orders, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := process.Start(t.Context(), process.Spec{
		Path: intruder, Args: []string{"start"}, Stdin: in, Stdout: w, Stderr: t.Output(), Dir: "/",
		Attr: func(a *syscall.SysProcAttr) { a.Credential = &syscall.Credential{Uid: 65534, Gid: 65534} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	_, _ = orders.Write(order)
	_, _ = orders.Close(), w.Close()
	s := &sandbox{Process: p, line: lines(t, r)}
	verdict, detail, _ := strings.Cut(s.says(t), " ")
	var f Facts
	if err := json.Unmarshal([]byte(detail), &f); err != nil || verdict != "reached" {
		t.Fatal(verdict, detail, err)
	}
	if f.UID != isolation.AgentInside || f.GID != isolation.AgentInside || f.Status["CapEff"] != noCaps || f.Status["CapBnd"] != noCaps ||
		f.Status["NoNewPrivs"] != "1" || f.Status["Seccomp"] != "2" {
		t.Errorf("%+v", f)
	}
}
