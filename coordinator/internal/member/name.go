package member

import (
	"crypto/rand"
	"os"
	"strings"

	"github.com/rota-dev/rota/internal/record"
)

// readHostName returns the name of the host, or "" if it has none that a record can hold.
func readHostName() string {
	host, err := os.Hostname()
	if err != nil || record.CheckHost(host) != nil {
		return ""
	}
	return host
}

// generateName makes a name of the host's and a random part, so that two processes on one
// host never clash.
func generateName() string {
	host := readHostName()
	if host == "" {
		host = "instance"
	}
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, host)
	random := strings.ToLower(rand.Text()[:8])
	return clean[:min(len(clean), record.MaxNameBytes-len(random)-1)] + "-" + random
}
