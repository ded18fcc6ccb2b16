package egress

import (
	"fmt"
	"net/netip"
)

// blocked are the ranges that are not of the public internet, the narrow ones
// first: a prefix that the operator allows opens a range only if it is at least
// as narrow, so that 0.0.0.0/0 opens nothing and 169.254.0.0/16 no metadata.
var blocked = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), "metadata"},
	{netip.MustParsePrefix("169.254.170.2/32"), "metadata"},   // container credentials
	{netip.MustParsePrefix("169.254.170.23/32"), "metadata"},  // pod credentials
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata"},   // public in form only
	{netip.MustParsePrefix("100.100.100.200/32"), "metadata"}, // in the shared range
	{netip.MustParsePrefix("192.0.0.192/32"), "metadata"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "metadata"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "metadata"},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared address space"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"}, // and broadcast
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("2001::/23"), "protocol assignments"}, // and Teredo
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
}

// global is where public IPv6 addresses are.
var global = netip.MustParsePrefix("2000::/3")

// nat64 is the well-known prefix behind which a network without IPv4 reaches it.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// AddressError says why an address is not connected to.
type AddressError struct {
	Addr netip.Addr
	// What the address is, such as "loopback".
	What string
}

// Error names the address and what it is.
func (e *AddressError) Error() string {
	return fmt.Sprintf("egress: %v is not allowed: %s", e.Addr, e.What)
}

// check decides on an address. opened says that the operator has named it.
func check(addr netip.Addr, allowed []netip.Prefix) (opened bool, err error) {
	if !addr.IsValid() || addr.Zone() != "" {
		return false, &AddressError{addr, "no plain address"}
	}
	plain := addr.Unmap()
	if nat64.Contains(plain) {
		b := plain.As16()
		plain = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, b := range blocked {
		if b.prefix.Contains(plain) {
			if opens(allowed, plain, b.prefix.Bits()) {
				return true, nil
			}
			return false, &AddressError{addr, b.what}
		}
	}
	if plain.Is6() && (!global.Contains(plain) || isatap(plain)) {
		return false, &AddressError{addr, "no public address"}
	}
	return opens(allowed, plain, 0), nil
}

// opens says whether a prefix of at least so many bits has the address in it.
func opens(allowed []netip.Prefix, addr netip.Addr, bits int) bool {
	for _, p := range allowed {
		if p.Bits() >= max(bits, 1) && p.Contains(addr) {
			return true
		}
	}
	return false
}

// isatap says that an IPv4 address stands in the interface id (RFC 5214).
func isatap(addr netip.Addr) bool {
	b := addr.As16()
	return b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
