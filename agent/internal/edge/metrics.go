package edge

import "time"

// Reasons that Metrics.Rejected is called with.
const (
	RejectTooMany     = "too_many"    // MaxConns or MaxFlows reached
	RejectUnreachable = "unreachable" // no target could be connected to
	RejectMisdirected = "misdirected" // Host differs from the TLS server name, or the host is gone
	RejectMalformed   = "malformed"   // request target or upgrade that is not served
)

// Metrics receives counts from the data path. Any func may be nil. They are
// called concurrently and must be quick. Expose is empty for connections to
// ports that several exposes share. Byte counts are as seen by the client:
// received from it, sent to it.
type Metrics struct {
	// Opened and Closed bracket a connection ("tcp", "http", "https"), a flow
	// ("udp") or an upgraded connection ("websocket").
	Opened func(expose, kind string)
	Closed func(expose, kind string, received, sent int64)
	// Request is called at the end of each proxied request. Status is 0 when
	// the client left before there was one; upgraded connections have 101.
	Request func(expose string, status int, received, sent int64, took time.Duration)
	// Rejected counts what was refused, by one of the Reject constants.
	Rejected func(expose, reason string)
}

// filled returns m with every func set.
func (m Metrics) filled() Metrics {
	if m.Opened == nil {
		m.Opened = func(string, string) {}
	}
	if m.Closed == nil {
		m.Closed = func(string, string, int64, int64) {}
	}
	if m.Request == nil {
		m.Request = func(string, int, int64, int64, time.Duration) {}
	}
	if m.Rejected == nil {
		m.Rejected = func(string, string) {}
	}
	return m
}
