// Package cleartext warns of passwords on connections without TLS.
package cleartext

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
)

// WarnPassword logs that a password is sent in clear text to the first endpoint that is beyond this host. Endpoints are
// host:port or URLs; those of TLS are left out by the caller.
func WarnPassword(log *slog.Logger, endpoints []string) {
	for _, e := range endpoints {
		if !isLocal(e) {
			log.LogAttrs(context.Background(), slog.LevelWarn, "the password of the store is sent without TLS", slog.String("endpoint", e))
			return
		}
	}
}

// isLocal reports whether an endpoint is on this host for certain.
func isLocal(endpoint string) bool {
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		if strings.HasPrefix(strings.ToLower(scheme), "unix") {
			return true
		}
		endpoint, _, _ = strings.Cut(rest, "/")
	}
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		host = strings.Trim(endpoint, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
