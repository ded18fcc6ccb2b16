//go:build cluster

package installation

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
)

// The codec of the native harness.
const (
	nativeCodec        = "cofferdam.native"
	nativeCodecVersion = 2
)

// Held is all that the worker of a run had, in the hands of a process that outlives it:
// its identity, its capabilities, and its way to the brokers.
type Held struct {
	impostor.Captured

	// Adapter is the worker's.
	Adapter impostor.Adapter

	i *impostor.Impostor
}

// Hold takes them from the worker's pod while it is in the middle of a run. The process has the network of another
// sandbox, so that walls between pods do not answer in the brokers' stead when this pod is not there any
// more. It ends with the test.
func (i *Installation) Hold(t testing.TB, run apiclient.Started, neighbour Seat) *Held {
	t.Helper()
	s := i.Seat(t, run.BindingID)
	worker := Process(t, s.Pod, "worker")
	h := &Held{}
	for _, a := range i.entries(t, "agents", "agents") {
		if a["harness"] == s.Binding.HarnessID {
			h.Adapter = impostor.Adapter{Harness: s.Binding.HarnessID, Version: fmt.Sprint(a["adapter_version"]), Codec: nativeCodec, CodecVersion: nativeCodecVersion}
		}
	}
	Until(t, "capabilities in the worker's memory", func() (_ bool, err error) {
		h.Captured, err = impostor.Capture(s.Binding, worker, run)
		return err == nil, err
	})
	var err error
	h.i, err = h.StartInPod(context.WithoutCancel(t.Context()), Process(t, neighbour.Pod, "worker"), i.Brokers(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.i.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// Try makes calls and gives what came of each, by what it was.
func (h *Held) Try(t testing.TB, calls ...impostor.Call) map[string]string {
	t.Helper()
	said, err := h.i.Make(calls...)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for n, c := range calls {
		got[c.What] = said[n]
	}
	return got
}

// Brokers are the addresses of all that a sandbox may reach, by name.
func (i *Installation) Brokers(t testing.TB) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, name := range []string{"capability", "toolbroker", "statefacade", "filebroker", "modelproxy"} {
		s, err := i.Cluster.Client.CoreV1().Services(System).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got[name] = "https://" + s.Spec.ClusterIP + ":8443"
	}
	return got
}
