package harness_test

import (
	"context"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
)

type named string

func (n named) Descriptor() harness.Descriptor { return harness.Descriptor{ID: string(n)} }

func (named) Health(context.Context) error { return nil }

func (named) Initialize(context.Context, harness.Construction) (harness.Runtime, error) {
	return nil, nil
}

func TestRegistry(t *testing.T) {
	r, err := harness.NewRegistry(named("native"), named("acp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"native", "acp"} {
		a, err := r.Get(id)
		if err != nil || a.Descriptor().ID != id {
			t.Errorf("%s: %v, %v", id, a, err)
		}
	}
	if _, err := r.Get("strands"); err == nil || !strings.Contains(err.Error(), "[acp native]") {
		t.Errorf("an unknown id: %v", err)
	}
	if _, err := harness.NewRegistry(named("acp"), named("acp")); err == nil {
		t.Error("two adapters of one id were taken")
	}
}
