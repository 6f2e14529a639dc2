package importing

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/executor"
)

// Command returns the command import. It writes to standard output, and a summary to standard error.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Convert the jobs of another scheduler",
		Long: `Import converts the jobs of another scheduler. It writes to standard output and changes nothing.
Each setting that rota cannot keep becomes a note in the output: read them before the first start.`,
	}
	cmd.AddCommand(crontabCommand())
	return cmd
}

func crontabCommand() *cobra.Command {
	var o crontabOptions
	cmd := &cobra.Command{
		Use:   "crontab [FILE]",
		Short: "Convert a crontab to a jobs file",
		Long: `Crontab converts a crontab to a file of rota run: each line becomes a job whose command is the same.
Without FILE, or with -, it reads standard input.`,
		Example: `  crontab -l | rota import crontab --timezone Europe/Berlin > jobs.yaml
  rota import crontab /etc/crontab > jobs.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.detect = !cmd.Flags().Changed("system")
			file := "-"
			if len(args) == 1 {
				file = args[0]
			}
			return importCrontab(cmd, file, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.system, "system", false, "lines have a column with a user, as in /etc/crontab (default: by the file)")
	f.StringVar(&o.timezone, "timezone", "", "time zone of the host that ran the crontab, such as Europe/Berlin")
	f.StringVar(&o.namespace, "namespace", "", "namespace to write into the jobs file")
	f.BoolVar(&o.startPaused, "start-paused", false, "have each job wait for rota resume")
	return cmd
}

func importCrontab(cmd *cobra.Command, file string, o crontabOptions) error {
	if err := checkTimezone(o.timezone); err != nil {
		return err
	}
	o.source = file
	var text []byte
	var err error
	if file == "-" {
		o.source = "standard input"
		text, err = io.ReadAll(cmd.InOrStdin())
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return fmt.Errorf("read the crontab: %w", err)
	}
	d, err := convertCrontab(string(text), o)
	if err != nil {
		return err
	}
	return writeOutput(cmd, &d, writeJobsFile(d))
}

// writeOutput writes the text of a document, and a summary of the document.
func writeOutput(cmd *cobra.Command, d *document, text string) error {
	if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "imported %d jobs; %d notes are in the output\n", len(d.jobs), d.countNotes())
	return err
}

// checkTimezone returns an error if name is neither empty nor the name of a time zone.
func checkTimezone(name string) error {
	if name == "" {
		return nil
	}
	if _, err := executor.Cron("0 0 * * *").In(name).Next(time.Time{}, 1); err != nil {
		return fmt.Errorf("--timezone: %w", errors.Unwrap(err))
	}
	return nil
}
