package egress

import (
	"errors"
	"net/netip"
	"testing"
)

func prefixes(t testing.TB, cidrs ...string) []netip.Prefix {
	t.Helper()
	out, err := ParsePrefixes(cidrs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAddressesThatAreNotPublicAreRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255",
		"169.254.169.254", "169.254.170.2", "169.254.0.1", "168.63.129.16", "100.100.100.200", "192.0.0.1", "192.0.0.192", "192.0.2.1", "198.51.100.7",
		"203.0.113.9", "198.18.0.1", "198.19.255.255", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.88.99.1",
		"::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1",
		"2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2a00::5efe:10.0.0.1", "2a00::200:5efe:10.0.0.1",
	} {
		if _, err := check(netip.MustParseAddr(s), nil); err == nil {
			t.Errorf("%s is connected to", s)
		}
	}
	if _, err := check(netip.Addr{}, nil); err == nil {
		t.Error("no address is connected to")
	}
	for _, s := range []string{
		"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "192.0.1.1", "198.17.255.255", "223.255.255.255",
		"2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
	} {
		if opened, err := check(netip.MustParseAddr(s), nil); err != nil || opened {
			t.Errorf("%s: opened %v, %v", s, opened, err)
		}
	}
}

// An operator's range opens what it names, and a wide one nothing by accident.
func TestRangesThatAreAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow, addr string
		want        bool
	}{
		{"127.0.0.1/32", "127.0.0.1", true},
		{"127.0.0.0/8", "127.9.9.9", true},
		{"127.0.0.0/8", "::ffff:127.0.0.1", true},
		{"127.0.0.0/8", "64:ff9b::127.0.0.1", true},
		{"127.0.0.0/8", "::1", false},
		{"127.0.0.1/32", "127.0.0.2", false},
		{"::1/128", "::1", true},
		{"::1/128", "127.0.0.1", false},
		{"10.1.0.0/16", "10.1.2.3", true},
		{"10.1.0.0/16", "10.2.0.1", false},
		{"128.0.0.0/1", "192.168.0.1", false},
		{"128.0.0.0/1", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.1.1", true},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"169.254.169.254/32", "169.254.169.254", true},
		{"100.64.0.0/10", "100.64.1.1", true},
		{"100.64.0.0/10", "100.100.100.200", false},
		{"fc00::/7", "fd00:1::1", true},
		{"fc00::/7", "fd00:ec2::254", false},
		{"8.0.0.0/8", "8.8.8.8", true},
	} {
		opened, err := check(netip.MustParseAddr(c.addr), prefixes(t, c.allow))
		if (err == nil) != c.want || opened != c.want {
			t.Errorf("%s with %s: opened %v, %v", c.addr, c.allow, opened, err)
		}
	}
	for _, s := range []string{"10.0.0.1/8", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104", "10.0.0.0", "10.0.0.0/33", "x", ""} {
		if _, err := ParsePrefixes([]string{s}); err == nil {
			t.Errorf("%q is taken for a range", s)
		}
	}
}

// However an IPv4 address is written into IPv6, it is refused as itself.
func FuzzEmbeddedAddresses(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})
	f.Add([]byte{169, 254, 169, 254}, []byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{10, 0, 0, 1}, []byte{0x20, 0x02, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, v4, high []byte) {
		if len(v4) != 4 || len(high) != 12 {
			return
		}
		a4 := netip.AddrFrom4([4]byte(v4))
		_, err4 := check(a4, nil)
		a16 := netip.AddrFrom16([16]byte(append(append([]byte{}, high...), v4...)))
		_, err16 := check(a16, nil)
		if err4 != nil && err16 == nil && (a16.Is4In6() || nat64.Contains(a16)) {
			t.Errorf("%v is refused and %v is not", a4, a16)
		}
		if err16 == nil && !a16.Is4In6() && !nat64.Contains(a16) && !global.Contains(a16) {
			t.Errorf("%v is no public address", a16)
		}
		var wrong *AddressError
		if err16 != nil && !errors.As(err16, &wrong) {
			t.Errorf("%v: %v", a16, err16)
		}
		for _, std := range []bool{a4.IsPrivate(), a4.IsLoopback(), a4.IsLinkLocalUnicast(), a4.IsMulticast(), a4.IsUnspecified()} {
			if std && err4 == nil {
				t.Errorf("%v is connected to", a4)
			}
		}
	})
}
