package eventtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
)

// The machine accepts every golden.
func TestGoldensAreLawful(t *testing.T) {
	t.Parallel()
	for name, g := range eventtest.Goldens() {
		m := event.NewMachine(g.Events[0].RunID, eventtest.GoldenConversationID, event.Bounds{}, g.Carried...)
		for _, e := range g.Events {
			if err := m.Accept(e); err != nil {
				t.Errorf("%s: event %d, %s: %v", name, e.Sequence, e.Type(), err)
			}
		}
		if _, over := m.Terminal(); !over {
			t.Errorf("%s has no terminal", name)
		}
	}
}

// Taken together the goldens have every event, every field that can be there or not,
// and every word of a field: what is added to the contract is missed here.
func TestGoldensAreComplete(t *testing.T) {
	t.Parallel()
	s := seen{types: map[event.Type]bool{}, present: map[string]bool{}, absent: map[string]bool{}, words: map[string]bool{}}
	for _, g := range eventtest.Goldens() {
		for _, e := range g.Events {
			s.types[e.Type()] = true
			s.fields(reflect.ValueOf(e.Data))
		}
	}
	for _, kind := range event.Types() {
		if !s.types[kind] {
			t.Errorf("no golden has %s", kind)
		}
	}
	if len(s.present) < 50 {
		t.Errorf("%d fields: some are not looked at", len(s.present))
	}
	for name := range s.absent {
		if !s.present[name] {
			t.Errorf("no golden has %s", name)
		}
	}
	for _, name := range s.optional {
		if !s.absent[name] {
			t.Errorf("no golden is without %s", name)
		}
	}
	for kind, words := range declared(t) {
		if !slices.Contains(s.kinds, kind) {
			continue // of no payload
		}
		for _, w := range words {
			if !s.words[kind+" "+w] {
				t.Errorf("no golden has the %s %q", kind, w)
			}
		}
	}
	if len(s.kinds) < 6 {
		t.Errorf("words of %v alone", s.kinds)
	}
}

type seen struct {
	types           map[event.Type]bool
	present, absent map[string]bool
	optional, kinds []string
	words           map[string]bool // type and word
}

// fields notes what of a struct is there.
func (s *seen) fields(v reflect.Value) {
	for i := range v.NumField() {
		f, at := v.Type().Field(i), v.Field(i)
		name := v.Type().Name() + "." + f.Name
		if f.Type.Size() == 0 {
			continue // a constant
		}
		if at.IsZero() {
			s.absent[name] = true
		} else {
			s.present[name] = true
		}
		may := strings.Contains(f.Tag.Get("json"), "omitempty") || at.Kind() == reflect.Pointer || at.Kind() == reflect.Bool
		if name == "RunFinished.ThreadState" {
			may = false // the control plane fills it in
		}
		if may && !slices.Contains(s.optional, name) {
			s.optional = append(s.optional, name)
		}
		s.value(at)
	}
}

func (s *seen) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.value(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			s.value(v.Index(i))
		}
	case reflect.Struct:
		s.fields(v)
	case reflect.String:
		kind := v.Type().Name()
		if !slices.Contains(s.kinds, kind) {
			s.kinds = append(s.kinds, kind)
		}
		s.words[kind+" "+v.String()] = true
	default:
	}
}

// declared are the constants of the package event, by their type.
func declared(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	//nolint:staticcheck // one package without build tags is read as it stands
	pkgs, err := parser.ParseDir(token.NewFileSet(), "..", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(pkgs["event"], func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		kind, named := spec.Type.(*ast.Ident)
		lit, literal := spec.Values[0].(*ast.BasicLit)
		if !named || !literal || lit.Kind != token.STRING || kind.Name == "Object" || kind.Name == "Value" {
			return true
		}
		word, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		out[kind.Name] = append(out[kind.Name], word)
		return true
	})
	if len(out) < 6 {
		t.Fatalf("constants of %d types", len(out))
	}
	return out
}
