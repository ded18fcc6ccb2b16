package wire

import (
	"regexp/syntax"
	"slices"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unbounded says why nothing bounds what a field may hold; "" for a field that
// is bounded, or that holds a number or a message, whose own fields are looked
// at.
func unbounded(f protoreflect.FieldDescriptor) string {
	rules := rulesOf(f)
	switch {
	case rules.GetIgnore() == validate.Ignore_IGNORE_ALWAYS:
		return "its rules are ignored"
	case f.IsMap():
		r := rules.GetMap()
		if !r.HasMaxPairs() {
			return "a map without max_pairs"
		}
		if problem := unboundedOne(f.MapKey(), r.GetKeys()); problem != "" {
			return "keys: " + problem
		}
		return prefixed("values: ", unboundedOne(f.MapValue(), r.GetValues()))
	case f.IsList():
		r := rules.GetRepeated()
		if !r.HasMaxItems() {
			return "repeated without max_items"
		}
		return prefixed("items: ", unboundedOne(f, r.GetItems()))
	default:
		return unboundedOne(f, rules)
	}
}

func prefixed(prefix, problem string) string {
	if problem == "" {
		return ""
	}
	return prefix + problem
}

// unboundedOne is unbounded for one value.
func unboundedOne(f protoreflect.FieldDescriptor, rules *validate.FieldRules) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		if !boundedString(rules.GetString()) {
			return "a string without max_len, max_bytes, len, const, in, or a pattern that can only match so much"
		}
	case protoreflect.BytesKind:
		if !boundedBytes(rules.GetBytes()) {
			return "bytes without max_len, len, const or in"
		}
	case protoreflect.EnumKind:
		if r := rules.GetEnum(); !r.GetDefinedOnly() && !r.HasConst() && len(r.GetIn()) == 0 {
			return "an enum that may hold a value nobody defined"
		}
	case protoreflect.GroupKind:
		return "a group"
	default:
		// Numbers are bounded by their type; messages field by field.
	}
	return ""
}

func boundedString(r *validate.StringRules) bool {
	return r.HasMaxLen() || r.HasMaxBytes() || r.HasLen() || r.HasLenBytes() || r.HasConst() || len(r.GetIn()) > 0 ||
		(r.HasPattern() && finite(r.GetPattern()))
}

func boundedBytes(r *validate.BytesRules) bool {
	return r.HasMaxLen() || r.HasLen() || r.HasConst() || len(r.GetIn()) > 0
}

// finite reports whether a pattern is tied to both ends of the text and matches
// only texts up to some length.
func finite(pattern string) bool {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || re.Op != syntax.OpConcat || len(re.Sub) < 2 {
		return false
	}
	if re.Sub[0].Op != syntax.OpBeginText || re.Sub[len(re.Sub)-1].Op != syntax.OpEndText {
		return false
	}
	return !repeats(re)
}

func repeats(re *syntax.Regexp) bool {
	if re.Op == syntax.OpStar || re.Op == syntax.OpPlus || (re.Op == syntax.OpRepeat && re.Max < 0) {
		return true
	}
	return slices.ContainsFunc(re.Sub, repeats)
}
