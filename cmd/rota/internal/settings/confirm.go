package settings

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// Confirm asks before a destructive act, unless --yes is set. Act completes "This will ...". Without
// a terminal, and in a protected context, it demands --yes.
func (s *Settings) Confirm(cmd *cobra.Command, act string) error {
	if err := s.CheckProtection(); err != nil || s.Yes {
		return err
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
		return exit.Usagef("this will %s: repeat with --yes, as there is no terminal to ask on", act)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "This will %s (%s). Continue? [y/N] ", act, s.Target())
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return exit.Usagef("not confirmed, nothing was changed")
	}
	return nil
}

// CheckProtection returns an error if the context is protected and --yes is not set. Verbs that
// Confirm does not guard call it.
func (s *Settings) CheckProtection() error {
	if err := s.Resolve(); err != nil {
		return err
	}
	if s.Protected && !s.Yes {
		return exit.Usagef("context %q is protected: repeat with --yes", s.Context)
	}
	return nil
}
