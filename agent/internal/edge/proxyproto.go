package edge

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// proxyHeader returns the PROXY protocol header that tells a backend who is
// connected to what: haproxy's proxy-protocol.txt, sections 2.1 (v1) and 2.2 (v2).
// Addresses that are not IP are announced as unknown.
func proxyHeader(version string, peer, local net.Addr) []byte {
	src, sok := addrPort(peer)
	dst, dok := addrPort(local)
	known := sok && dok
	if known && src.Addr().Is4() != dst.Addr().Is4() {
		// One header carries one family: IPv4 in its mapped form.
		src = netip.AddrPortFrom(netip.AddrFrom16(src.Addr().As16()), src.Port())
		dst = netip.AddrPortFrom(netip.AddrFrom16(dst.Addr().As16()), dst.Port())
	}
	if version == "v1" {
		return proxyHeaderV1(src, dst, known)
	}
	return proxyHeaderV2(src, dst, known)
}

func proxyHeaderV1(src, dst netip.AddrPort, known bool) []byte {
	if !known {
		return []byte("PROXY UNKNOWN\r\n")
	}
	family := "TCP6"
	if src.Addr().Is4() {
		family = "TCP4"
	}
	return fmt.Appendf(nil, "PROXY %s %s %s %d %d\r\n", family, src.Addr(), dst.Addr(), src.Port(), dst.Port())
}

const proxySignature = "\r\n\r\n\x00\r\nQUIT\n"

func proxyHeaderV2(src, dst netip.AddrPort, known bool) []byte {
	const versionAndCommand = 0x21 // version 2, PROXY
	h := append([]byte(proxySignature), versionAndCommand)
	switch {
	case !known:
		return append(h, 0x00, 0, 0) // AF_UNSPEC, no addresses
	case src.Addr().Is4():
		h = append(h, 0x11, 0, 12) // AF_INET, STREAM
	default:
		h = append(h, 0x21, 0, 36) // AF_INET6, STREAM
	}
	h = append(h, src.Addr().AsSlice()...)
	h = append(h, dst.Addr().AsSlice()...)
	h = binary.BigEndian.AppendUint16(h, src.Port())
	return binary.BigEndian.AppendUint16(h, dst.Port())
}

// addrPort returns the address without IPv6 zone, IPv4 in its short form.
func addrPort(a net.Addr) (netip.AddrPort, bool) {
	if a == nil {
		return netip.AddrPort{}, false
	}
	var ap netip.AddrPort
	if t, ok := a.(*net.TCPAddr); ok {
		ap = t.AddrPort()
	} else if p, err := netip.ParseAddrPort(a.String()); err == nil {
		ap = p
	}
	if !ap.IsValid() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), true
}
