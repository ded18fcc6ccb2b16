package procs

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// listening is the kernel's number of the state in its tables.
const listening = "0A"

// Listeners are the TCP addresses at which a process can accept connections.
func Listeners(pid int) ([]netip.AddrPort, error) {
	files, err := Files(pid)
	if err != nil {
		return nil, err
	}
	mine := map[string]bool{}
	for _, target := range files {
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var found []netip.AddrPort
	for _, table := range []string{"tcp", "tcp6"} {
		part, err := listenersIn(path(pid, "net", table), mine)
		if err != nil {
			return nil, err
		}
		found = append(found, part...)
	}
	return found, nil
}

// listenersIn reads one of the kernel's tables: after a heading, a line a socket.
func listenersIn(table string, mine map[string]bool) ([]netip.AddrPort, error) {
	file, err := os.Open(table)
	if err != nil {
		return nil, gone(err)
	}
	defer func() { _ = file.Close() }() // only read
	var found []netip.AddrPort
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listening || !mine[fields[9]] {
			continue
		}
		address, err := parseAddress(fields[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		found = append(found, address)
	}
	return found, lines.Err()
}

// parseAddress reads 0100007F:1F90: words in the order of the machine, then a port.
func parseAddress(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address %q", s)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(address.Unmap(), uint16(n)), err
}
