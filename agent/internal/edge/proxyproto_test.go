package edge

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

type otherAddr struct{}

func (otherAddr) Network() string { return "unix" }
func (otherAddr) String() string  { return "/run/x" }

func tcpAddr(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

// TestProxyHeaderBytes holds bytes worked out by hand from the specification.
func TestProxyHeaderBytes(t *testing.T) {
	const sig = "0d0a0d0a000d0a515549540a"
	for name, tc := range map[string]struct {
		src, dst net.Addr
		v1, v2   string // v2 in hex
	}{
		"ipv4": {tcpAddr("100.64.0.7:51000"), tcpAddr("100.64.0.1:5432"),
			"PROXY TCP4 100.64.0.7 100.64.0.1 51000 5432\r\n",
			sig + "2111000c" + "64400007" + "64400001" + "c738" + "1538"},
		"ipv6": {tcpAddr("[fd7a:115c:a1e0::7]:51000"), tcpAddr("[fd7a:115c:a1e0::1]:443"),
			"PROXY TCP6 fd7a:115c:a1e0::7 fd7a:115c:a1e0::1 51000 443\r\n",
			sig + "21210024" + "fd7a115ca1e000000000000000000007" + "fd7a115ca1e000000000000000000001" + "c738" + "01bb"},
		"mapped ipv4 is ipv4": {tcpAddr("[::ffff:10.0.0.1]:1"), tcpAddr("10.0.0.2:2"),
			"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
			sig + "2111000c" + "0a000001" + "0a000002" + "0001" + "0002"},
		"mixed families": {tcpAddr("10.0.0.1:1"), tcpAddr("[2001:db8::2]:2"),
			"PROXY TCP6 ::ffff:10.0.0.1 2001:db8::2 1 2\r\n",
			sig + "21210024" + "00000000000000000000ffff0a000001" + "20010db8000000000000000000000002" + "0001" + "0002"},
		"zone is left out": {tcpAddr("[fe80::1%eth0]:1"), tcpAddr("[fe80::2%eth0]:2"),
			"PROXY TCP6 fe80::1 fe80::2 1 2\r\n",
			sig + "21210024" + "fe800000000000000000000000000001" + "fe800000000000000000000000000002" + "0001" + "0002"},
		"not IP": {otherAddr{}, tcpAddr("10.0.0.2:2"), "PROXY UNKNOWN\r\n", sig + "21000000"},
		"nil":    {nil, nil, "PROXY UNKNOWN\r\n", sig + "21000000"},
	} {
		if got := string(proxyHeader("v1", tc.src, tc.dst)); got != tc.v1 {
			t.Errorf("%s: v1 is %q, want %q", name, got, tc.v1)
		}
		if got := hex.EncodeToString(proxyHeader("v2", tc.src, tc.dst)); got != tc.v2 {
			t.Errorf("%s: v2 is\n%s, want\n%s", name, got, tc.v2)
		}
	}
}

// parseV1 and parseV2 read what a backend would, straight from the specification.
func parseV1(b []byte) (src, dst netip.AddrPort, err error) {
	line, rest, ok := strings.Cut(string(b), "\r\n")
	f := strings.Split(line, " ")
	if !ok || rest != "" || len(b) > 107 || len(f) != 6 || f[0] != "PROXY" {
		return src, dst, fmt.Errorf("malformed %q", b)
	}
	var ends [2]netip.AddrPort
	for i := range ends {
		a, err := netip.ParseAddr(f[2+i])
		if err != nil {
			return src, dst, err
		}
		p, err := strconv.ParseUint(f[4+i], 10, 16)
		if err != nil {
			return src, dst, err
		}
		if (f[1] == "TCP4") != a.Is4() {
			return src, dst, fmt.Errorf("%s in %s", a, f[1])
		}
		ends[i] = netip.AddrPortFrom(a, uint16(p))
	}
	return ends[0], ends[1], nil
}

func parseV2(b []byte) (src, dst netip.AddrPort, err error) {
	if len(b) < 16 || string(b[:12]) != "\r\n\r\n\x00\r\nQUIT\n" || b[12] != 0x21 {
		return src, dst, fmt.Errorf("malformed %x", b)
	}
	size := map[byte]int{0x11: 4, 0x21: 16}[b[13]]
	body := b[16:]
	if n := int(binary.BigEndian.Uint16(b[14:])); size == 0 || n != len(body) || n != 2*size+4 {
		return src, dst, fmt.Errorf("malformed length in %x", b)
	}
	s, _ := netip.AddrFromSlice(body[:size])
	d, _ := netip.AddrFromSlice(body[size : 2*size])
	ports := body[2*size:]
	return netip.AddrPortFrom(s, binary.BigEndian.Uint16(ports)), netip.AddrPortFrom(d, binary.BigEndian.Uint16(ports[2:])), nil
}

// FuzzProxyHeader writes any two addresses and reads them back.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte{10, 0, 0, 1}, uint16(1), []byte{10, 0, 0, 2}, uint16(65535))
	f.Add(bytes.Repeat([]byte{0xfd}, 16), uint16(0), bytes.Repeat([]byte{0xfe}, 16), uint16(443))
	f.Add([]byte{10, 0, 0, 1}, uint16(1), bytes.Repeat([]byte{1}, 16), uint16(2))
	f.Fuzz(func(t *testing.T, s []byte, sp uint16, d []byte, dp uint16) {
		sa, sok := netip.AddrFromSlice(s)
		da, dok := netip.AddrFromSlice(d)
		if !sok || !dok {
			return
		}
		src, dst := netip.AddrPortFrom(sa, sp), netip.AddrPortFrom(da, dp)
		for version, parse := range map[string]func([]byte) (netip.AddrPort, netip.AddrPort, error){"v1": parseV1, "v2": parseV2} {
			h := proxyHeader(version, net.TCPAddrFromAddrPort(src), net.TCPAddrFromAddrPort(dst))
			gs, gd, err := parse(h)
			if err != nil {
				t.Fatalf("%s: %v", version, err)
			}
			if gs.Addr().Unmap() != sa.Unmap() || gs.Port() != sp || gd.Addr().Unmap() != da.Unmap() || gd.Port() != dp {
				t.Errorf("%s: %v %v came back as %v %v", version, src, dst, gs, gd)
			}
		}
	})
}
