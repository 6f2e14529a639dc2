package importing

import (
	"errors"
	"fmt"
	"go/token"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/schedule"
)

// Command returns the command import. It writes to standard output, and a summary to standard error.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Convert the jobs of another scheduler",
		Long: `Import converts the jobs of another scheduler. It writes to standard output and changes nothing.
Each setting that rota cannot keep becomes a note in the output: read them before the first start. Jobs that
cannot be converted become notes, too, and the command exits with 1.`,
	}
	for _, c := range []*cobra.Command{crontabCommand(), elasticJobCommand()} {
		cmd.AddCommand(settings.Limit(c))
	}
	return settings.Limit(cmd)
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
		return exit.Usagef("read the crontab: %w", err)
	}
	d, refused := convertCrontab(string(text), o)
	return writeOutput(cmd, &d, refused, func(d document) (string, error) { return writeJobsFile(d), nil })
}

// writeOutput writes a document, and a summary of it. Jobs that could not be converted do not keep the others from being written: refused,
// the errors of all, one in a line, become notes, and writeOutput returns it.
func writeOutput(cmd *cobra.Command, d *document, refused error, text func(document) (string, error)) error {
	if len(d.jobs) == 0 {
		return refused
	}
	if refused != nil {
		for line := range strings.Lines(refused.Error()) {
			d.notes = append(d.notes, "NOT CONVERTED: "+strings.TrimSuffix(line, "\n"))
		}
	}
	out, err := text(*d)
	if err != nil {
		return errors.Join(refused, err)
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), out); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "imported %s, with %s in the output\n", count.Of(len(d.jobs), "job"), count.Of(d.countNotes(), "note")); err != nil {
		return err
	}
	if refused != nil {
		return fmt.Errorf("not all jobs are converted:\n%w", refused)
	}
	return nil
}

// checkTimezone returns an error if name is neither empty nor the name of a time zone.
func checkTimezone(name string) error {
	if name == "" {
		return nil
	}
	if _, err := schedule.Cron("0 0 * * *").In(name).Next(time.Time{}, 1); err != nil {
		return exit.Usagef("--timezone: %w", errors.Unwrap(err))
	}
	return nil
}

// The outputs of import elasticjob.
const (
	toJobs = "jobs"
	toGo   = "go"
)

func elasticJobCommand() *cobra.Command {
	var o elasticJobOptions
	var to, packageName, digestFile string
	cmd := &cobra.Command{
		Use:   "elasticjob zookeeper://HOST[:PORT],.../NAMESPACE",
		Short: "Convert a namespace of Elastic-Job-Lite to a jobs file or to Go",
		Long: `Elasticjob reads the jobs of a namespace of Elastic-Job-Lite 1.x, 2.x or 3.x from its ZooKeeper, and changes nothing there.

--to jobs writes a file of rota run: script and HTTP jobs are complete; jobs of a Java class need a command.
--to go writes definitions for package executor: jobs of a Java class need a handler.
Jobs start paused, so that none runs in both systems.`,
		Example: `  rota import elasticjob zookeeper://zk1,zk2,zk3/billing --timezone Asia/Shanghai > jobs.yaml
  rota import elasticjob zookeeper://zk1/billing --to go --package jobs --job 'settle*' > jobs.go`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importElasticJob(cmd, args[0], to, packageName, digestFile, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.timezone, "timezone", "", "time zone of the JVMs, for jobs without timeZone, such as Asia/Shanghai")
	f.StringVar(&o.namespace, "namespace", "", "namespace to write into the jobs file (default: that of Elastic-Job)")
	f.BoolVar(&o.startPaused, "start-paused", true, "have each job wait for rota resume")
	f.StringVar(&to, "to", toJobs, "output: "+toJobs+" or "+toGo)
	f.StringVar(&packageName, "package", "jobs", "name of the Go package")
	f.StringArrayVar(&o.jobs, "job", nil, "convert only jobs whose names match this pattern; can be repeated")
	f.StringVar(&digestFile, "digest-file", "", "file with USER:PASSWORD for ZooKeeper")
	return cmd
}

func importElasticJob(cmd *cobra.Command, address, to, packageName, digestFile string, o elasticJobOptions) error {
	if err := checkElasticJobFlags(to, packageName, o); err != nil {
		return err
	}
	a, err := parseElasticJobAddress(address)
	if err != nil {
		return err
	}
	credentials, err := readCredentials(digestFile)
	if err != nil {
		return err
	}
	root, err := readElasticJob(cmd.Context(), a, credentials)
	if err != nil {
		return err
	}
	o.source = "the namespace " + a.namespace
	if o.namespace == "" {
		o.namespace = path.Base(a.namespace)
	}
	d, refused := convertElasticJob(root, o)
	return writeOutput(cmd, &d, refused, func(d document) (string, error) {
		if to == toGo {
			return writeGoFile(d, packageName)
		}
		return writeJobsFile(d), nil
	})
}

func checkElasticJobFlags(to, packageName string, o elasticJobOptions) error {
	if to != toJobs && to != toGo {
		return exit.Usagef("--to is %q, not %s or %s", to, toJobs, toGo)
	}
	if !token.IsIdentifier(packageName) || packageName == "_" {
		return exit.Usagef("--package is %q, not the name of a Go package", packageName)
	}
	for _, p := range o.jobs {
		if _, err := path.Match(p, ""); err != nil {
			return exit.Usagef("--job %q: %w", p, err)
		}
	}
	return checkTimezone(o.timezone)
}
