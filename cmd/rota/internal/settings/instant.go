package settings

import (
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/instant"
)

// Directions of ParseInstant.
const (
	Past   = instant.Past
	Future = instant.Future
)

// ParseInstant reads the instant that a flag names, in UTC or, with --time local, in the local zone. See instant.Parse.
func (s *Settings) ParseInstant(flag, text string, d instant.Direction) (time.Time, error) {
	if err := s.Resolve(); err != nil {
		return time.Time{}, err
	}
	zone := time.UTC
	if s.Time == "local" {
		zone = time.Local
	}
	at, err := instant.Parse(text, time.Now(), zone, d)
	if err != nil {
		return at, exit.Usagef("--%s is %w", flag, err)
	}
	return at, nil
}
