package toolschema

import (
	"reflect"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// work is how many schemas stand behind root once its references are written
// out, counted up to somewhat more than maxWork. A schema that contains itself
// counts once on each way to it: how often it is applied then depends on the
// arguments, which are bounded.
func work(root *jsonschema.Schema) int {
	c := counter{done: make(map[*jsonschema.Schema]int), open: make(map[*jsonschema.Schema]bool)}
	return c.count(root)
}

type counter struct {
	done map[*jsonschema.Schema]int
	open map[*jsonschema.Schema]bool
}

func (c *counter) count(s *jsonschema.Schema) int {
	if n, ok := c.done[s]; ok || c.open[s] {
		return max(n, 1)
	}
	c.open[s] = true
	n := 1
	for _, field := range reflect.ValueOf(s).Elem().Fields() {
		if field.CanInterface() { // the library's own links are no part of the schema
			n = min(n+c.below(field), maxWork+1)
		}
	}
	delete(c.open, s)
	c.done[s] = n
	return n
}

// below finds schemas in the value of a field: itself, in a list, in a map.
func (c *counter) below(v reflect.Value) int {
	n := 0
	switch v.Kind() { //nolint:exhaustive // a schema is in no other kind of value
	case reflect.Interface:
		if !v.IsNil() {
			n = c.below(v.Elem())
		}
	case reflect.Pointer:
		switch p := v.Interface().(type) {
		case *jsonschema.Schema:
			if p != nil {
				n = c.count(p)
			}
		case *jsonschema.DynamicRef:
			if p != nil && p.Ref != nil {
				n = c.count(p.Ref)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			n = min(n+c.below(v.Index(i)), maxWork+1)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			n = min(n+c.below(it.Value()), maxWork+1)
		}
	}
	return n
}
