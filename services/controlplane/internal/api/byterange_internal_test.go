package api

import "testing"

func TestRanges(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct {
		byteRange

		partial bool
	}{
		"":                             {byteRange{0, 10}, false},
		"bytes=0-":                     {byteRange{0, 10}, true},
		"bytes=0-0":                    {byteRange{0, 1}, true},
		"bytes=3-5":                    {byteRange{3, 3}, true},
		"bytes=9-":                     {byteRange{9, 1}, true},
		"bytes=3-99":                   {byteRange{3, 7}, true},
		"bytes=-4":                     {byteRange{6, 4}, true},
		"bytes=-99":                    {byteRange{0, 10}, true},
		"bytes=10-":                    {byteRange{}, true},
		"bytes=-0":                     {byteRange{10, 0}, true},
		"bytes=5-3":                    {byteRange{0, 10}, false},
		"bytes=0-1,3-4":                {byteRange{0, 10}, false},
		"bytes=a-b":                    {byteRange{0, 10}, false},
		"bytes=+1-2":                   {byteRange{0, 10}, false},
		"bytes=-":                      {byteRange{0, 10}, false},
		"bytes=1":                      {byteRange{0, 10}, false},
		"lines=1-2":                    {byteRange{0, 10}, false},
		"bytes=99999999999999999999-":  {byteRange{0, 10}, false},
		"bytes=0-99999999999999999999": {byteRange{0, 10}, false},
		"bytes=9223372036854775807-":   {byteRange{}, true},
		"bytes=--1":                    {byteRange{0, 10}, false},
	} {
		if part, partial := parseRange([]string{header}, 10); part != want.byteRange || partial != want.partial {
			t.Errorf("%q is %v, %v, want %v", header, part, partial, want)
		}
	}
	if _, partial := parseRange([]string{"bytes=0-1", "bytes=0-1"}, 10); partial {
		t.Error("two headers are one range")
	}
}

// Whatever is asked for, nothing outside of the file is answered.
func FuzzRange(f *testing.F) {
	f.Add("bytes=0-1", int64(10))
	f.Add("bytes=-5", int64(3))
	f.Add("bytes=5-", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		size = max(size, 0)
		part, partial := parseRange([]string{header}, size)
		if part.offset < 0 || part.length < 0 || part.offset > size || part.length > size-part.offset || !partial && part != whole(size) {
			t.Fatalf("%q of %d is %v, %v", header, size, part, partial)
		}
	})
}
