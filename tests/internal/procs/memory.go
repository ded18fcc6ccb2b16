package procs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// chunk is how much memory is looked at at once, in bytes.
const chunk = 1 << 20

// Holds looks for texts in all the memory of a process that it can read, and gives those
// that stand in it. Of each only the bytes as they are can be found. It needs the
// right to trace the process, which its ancestors have.
func Holds(pid int, texts ...string) (found []string, err error) {
	maps, err := os.Open(path(pid, "maps"))
	if err != nil {
		return nil, gone(err)
	}
	defer func() { _ = maps.Close() }() // only read
	mem, err := os.Open(path(pid, "mem"))
	if err != nil {
		return nil, gone(err)
	}
	defer func() { _ = mem.Close() }() // only read
	s := search{mem: mem, left: append([]string(nil), texts...)}
	for _, t := range texts {
		s.longest = max(s.longest, len(t))
	}
	err = mappings(maps, "r", s.region)
	if s.read == 0 {
		return nil, errors.Join(errors.New("nothing of its memory can be read"), err)
	}
	return s.found, err
}

type search struct {
	mem         io.ReaderAt
	longest     int
	left, found []string
	read        int64
}

// region looks at one mapping. What cannot be read, such as a mapping that has
// gone since, holds nothing.
func (s *search) region(from, to int64) {
	buf := make([]byte, chunk+s.longest) // chunks overlap by the longest text
	for at := from; at < to && len(s.left) > 0; at += chunk {
		n, _ := s.mem.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		s.read += int64(n)
		rest := s.left[:0]
		for _, t := range s.left {
			if bytes.Contains(buf[:n], []byte(t)) {
				s.found = append(s.found, t)
			} else {
				rest = append(rest, t)
			}
		}
		s.left = rest
		if n == 0 {
			return
		}
	}
}

// Memory gives the writable memory of a process, part by part; parts overlap by
// the given number of bytes where they are of one mapping.
func Memory(pid, overlap int, part func([]byte)) error {
	maps, err := os.Open(path(pid, "maps"))
	if err != nil {
		return gone(err)
	}
	defer func() { _ = maps.Close() }() // only read
	mem, err := os.Open(path(pid, "mem"))
	if err != nil {
		return gone(err)
	}
	defer func() { _ = mem.Close() }() // only read
	buf := make([]byte, chunk+overlap)
	read := 0
	err = mappings(maps, "rw", func(from, to int64) {
		for at := from; at < to; at += chunk {
			n, _ := mem.ReadAt(buf[:min(int64(len(buf)), to-at)], at) // what cannot be read holds nothing
			if n == 0 {
				return
			}
			read += n
			part(buf[:n])
		}
	})
	if err == nil && read == 0 {
		err = errors.New("nothing of its memory can be read")
	}
	return err
}

// mappings gives those with certain rights.
func mappings(maps io.Reader, wanted string, region func(from, to int64)) error {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		area, rights, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasPrefix(rights, wanted) {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(area, "%x-%x", &from, &to); err != nil {
			return err
		}
		region(from, to)
	}
	return lines.Err()
}

// Weight is how much memory a process takes, in bytes.
type Weight struct {
	// RSS counts what is shared with others in full, PSS in parts.
	RSS, PSS int64
}

// Weigh weighs a process.
func Weigh(pid int) (Weight, error) {
	raw, err := os.ReadFile(path(pid, "smaps_rollup"))
	if err != nil {
		return Weight{}, gone(err)
	}
	var w Weight
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &kib); err == nil {
			w.RSS = kib << 10
		}
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
			w.PSS = kib << 10
		}
	}
	return w, nil
}
