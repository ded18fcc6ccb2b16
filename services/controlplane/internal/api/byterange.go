package api

import (
	"strconv"
	"strings"
)

// byteRange of a file.
type byteRange struct{ offset, length int64 }

func whole(size int64) byteRange { return byteRange{0, size} }

// of is the Content-Range of a file of this size.
func (b byteRange) of(size int64) string {
	return "bytes " + strconv.FormatInt(b.offset, 10) + "-" + strconv.FormatInt(b.offset+b.length-1, 10) + "/" + strconv.FormatInt(size, 10)
}

// parseRange reads the Range header of a file of this size. Several ranges, other
// units and what is not well formed are passed over, as RFC 9110 14.2 says: then
// partial is false, and the answer is the whole file. A range of which the file has
// nothing is empty.
func parseRange(headers []string, size int64) (part byteRange, partial bool) {
	if len(headers) != 1 {
		return whole(size), false
	}
	spec, ok := strings.CutPrefix(headers[0], "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash || strings.Contains(spec, ",") {
		return whole(size), false
	}
	if first == "" { // the last so many
		n, ok := position(last)
		if !ok {
			return whole(size), false
		}
		n = min(n, size)
		return byteRange{size - n, n}, true
	}
	from, ok := position(first)
	if !ok {
		return whole(size), false
	}
	to := size - 1
	if last != "" {
		n, ok := position(last)
		if !ok || n < from {
			return whole(size), false
		}
		to = min(to, n)
	}
	if from >= size {
		return byteRange{}, true
	}
	return byteRange{from, to - from + 1}, true
}

// position is digits and nothing else.
func position(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
