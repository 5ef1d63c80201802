package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// off is the word for no listener.
const off = "off"

// parseMetrics reads metrics.listen: off, unix:///PATH, or an address of the loopback interface with a port.
func parseMetrics(listen string) (Metrics, error) {
	if listen == off {
		return Metrics{}, nil
	}
	if path, ok := strings.CutPrefix(listen, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if !filepath.IsAbs(path) {
			return Metrics{}, fmt.Errorf("%q: the path is not absolute (unix:///PATH; abstract sockets have no mode and are refused)", listen)
		}
		return Metrics{Path: filepath.Clean(path)}, nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return Metrics{}, fmt.Errorf("%q is none of off, unix:///PATH, 127.0.0.1:PORT, [::1]:PORT", listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Metrics{}, fmt.Errorf("%q: %q is not a port", listen, port)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return Metrics{}, fmt.Errorf("%q: %q is not an address of the loopback interface", listen, host)
	case !addr.IsLoopback():
		return Metrics{}, fmt.Errorf("%q: metrics are served without a password and without TLS, so only on the loopback interface (127.0.0.1, [::1]) or a unix socket; put a proxy before it for others", listen)
	}
	return Metrics{Address: net.JoinHostPort(addr.String(), port)}, nil
}
