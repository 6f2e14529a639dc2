package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// ofOneFleet are the flags, and with ROTA_ and capitals the variables, that replace what a context has.
var ofOneFleet = []string{"registry", "namespace", "group", "history"}

// credentialVariables are the variables that replace the credentials of a context.
var credentialVariables = []string{
	"ROTA_USER", "ROTA_PASSWORD", "ROTA_PASSWORD_FILE", "ROTA_TLS", "ROTA_TLS_CA_FILE", "ROTA_TLS_CERT_FILE", "ROTA_TLS_KEY_FILE", "ROTA_TLS_SERVER_NAME",
}

// OfContexts returns complete Settings for each of these contexts; for none or one, these are s, with the usual rules. For several, a
// flag or a variable that would replace a part of each is refused. The registry of one with Settings of its own is closed by its Close.
func (s *Settings) OfContexts(names []string) ([]*Settings, error) {
	if len(names) < 2 {
		if len(names) == 1 {
			s.Context = names[0]
		}
		return []*Settings{s}, s.checkFleet()
	}
	for _, flag := range ofOneFleet {
		if s.flags.Changed(flag) {
			return nil, exit.Usagef("--%s is that of one fleet, and %d contexts are named", flag, len(names))
		}
		if name := "ROTA_" + strings.ToUpper(flag); s.Getenv(name) != "" {
			return nil, exit.Usagef("%s would replace that of each of the %d contexts: unset it", name, len(names))
		}
	}
	for _, name := range credentialVariables {
		if s.Getenv(name) != "" {
			return nil, exit.Usagef("%s would be sent to the registry of each of the %d contexts: unset it", name, len(names))
		}
	}
	var all []*Settings
	for _, name := range names {
		c := New(s.Schemes)
		c.AddFlags(&cobra.Command{}) // sets the defaults
		c.OpenRegistry, c.Getenv, c.Clock, c.Context, c.Yes = s.OpenRegistry, s.Getenv, s.Clock, name, s.Yes
		if err := c.checkFleet(); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// checkFleet completes the settings, and checks registry and namespace without a connection.
func (s *Settings) checkFleet() error {
	if err := s.Resolve(); err != nil {
		return err
	}
	if err := s.checkAddress(); err != nil {
		if s.Context != "" {
			err = fmt.Errorf("context %q: %w", s.Context, err)
		}
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return nil
}
