package failpoint

import "testing"

func TestEachPointHasANameAndASignalOfItsOwn(t *testing.T) {
	const lastSignal = 64
	seen := map[string]bool{}
	for _, p := range All() {
		name := p.String()
		if p.Program() == "" || name == p.Program()+"/" || seen[name] {
			t.Errorf("point %d is %q", p, name)
		}
		seen[name] = true
		if n := int(p.Signal()); n < firstSignal || n > lastSignal {
			t.Errorf("%s has signal %d", name, n)
		}
	}
	if len(seen) != int(points) {
		t.Errorf("%d points, want %d", len(seen), points)
	}
}
