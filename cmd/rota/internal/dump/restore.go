package dump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/view"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// RestoreCommand returns the command restore.
func RestoreCommand(s *settings.Settings) *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "restore FILE",
		Short: "Store the definitions and intents of a dump that are missing",
		Long: `Restore reads a dump (- is the standard input), and stores its definitions and intents in the group:
pauses, stopped schedules, and what is disabled. Records that exist are kept. Pending triggers,
watermarks, runs and checkpoints are not restored: each job begins with its next fire.

The dump must have been made with --params. Restore raises no fences: see docs/operating.md.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := load(cmd, args[0])
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			entries, err := f.missing(s)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			act := fmt.Sprintf("store up to %d records of %s/%s", len(entries), f.Namespace, f.Group)
			if err := s.Confirm(cmd, act); err != nil {
				return err
			}
			v, err := store(cmd.Context(), s, entries)
			if err != nil {
				return s.ExplainFailure(err)
			}
			return screen.Print(cmd.OutOrStdout(), v, s.Output, screen.TimesOf(s))
		},
	}, append([]string{"output", "yes"}, settings.Connection...)...)
}

// load reads a dump.
func load(cmd *cobra.Command, path string) (*File, error) {
	in := cmd.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var f File
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s is not a dump: %w", path, err)
	}
	switch {
	case f.Version == 0 || f.Group == "":
		return nil, fmt.Errorf("%s is not a dump", path)
	case f.Version > view.Version:
		return nil, fmt.Errorf("%s has version %d, and this program knows %d", path, f.Version, view.Version)
	case f.Masked:
		return nil, fmt.Errorf("the parameters of %s are masked: make the dump with --params", path)
	}
	return &f, nil
}

// missing returns the definitions and control records of a dump, by their keys in the group of s.
func (f *File) missing(s *settings.Settings) (map[registry.Key][]byte, error) {
	if err := s.Resolve(); err != nil {
		return nil, err
	}
	to, err := record.NewKeys(s.Namespace, s.Group)
	if err != nil {
		return nil, err
	}
	entries := map[registry.Key][]byte{}
	prefix := "groups/" + f.Group + "/"
	for _, r := range f.Records {
		dir, segment, _ := strings.Cut(strings.TrimPrefix(r.Key, prefix), "/")
		if !strings.HasPrefix(r.Key, prefix) || r.Value == nil {
			continue
		}
		var key registry.Key
		var value []byte
		switch {
		case dir == "jobs":
			key = to.Job(segment)
			value, err = definitionOf(r.Value)
		case dir == "control" && segment == record.GroupSegment:
			key = to.GroupControl()
			value, err = groupControlOf(r.Value)
		case dir == "control":
			key = to.Control(segment)
			value, err = controlOf(r.Value)
		case dir == "plan":
			key = to.Control(segment)
			if _, has := entries[key]; has {
				continue
			}
			value, err = controlOfPlan(r.Value)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", r.Key, err)
		}
		entries[key] = value
	}
	return entries, nil
}

func definitionOf(text json.RawMessage) ([]byte, error) {
	def, _, err := record.DecodeDefinition(text)
	if err != nil {
		return nil, err
	}
	return record.EncodeChecked(def)
}

func groupControlOf(text json.RawMessage) ([]byte, error) {
	c, err := record.DecodeGroupControl(text)
	if err != nil {
		return nil, err
	}
	return record.EncodeChecked(c)
}

// controlOf returns the intent of a control record without its pending triggers and backfills: they may have run since
// the dump. The number of the last one stays, as a number that is used again would not run. Cancelled runs are
// left out as well: the restored plan knows none of them.
func controlOf(text json.RawMessage) ([]byte, error) {
	c, err := record.DecodeControl(text)
	if err != nil {
		return nil, err
	}
	c.Triggers, c.Backfills, c.Cancels = nil, nil, nil
	return record.EncodeChecked(c)
}

// controlOfPlan returns the intent in a plan, for a job that had no control record. The pause of the group has a record
// of its own.
func controlOfPlan(text json.RawMessage) ([]byte, error) {
	p, err := record.DecodePlan(text)
	if err != nil {
		return nil, err
	}
	own := p.OwnHold()
	return record.EncodeChecked(&record.Control{Job: p.Job, Paused: own.Paused, Stopped: own.Stopped, Disabled: p.Disabled})
}

// store creates the records that do not exist.
func store(ctx context.Context, s *settings.Settings, entries map[registry.Key][]byte) (view.Done, error) {
	s.AllowWrites()
	reg, err := s.Connect(ctx)
	if err != nil {
		return view.Done{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	stored, kept := 0, 0
	v := view.Done{Version: view.Version, Verb: "restore", Jobs: []string{}}
	// Intents come before definitions (control sorts before jobs): a job is not to run between the two.
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		_, err := registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Create(key, entries[key])}})
		switch {
		case errors.Is(err, registry.ErrConflict):
			kept++
		case err != nil:
			return v, fmt.Errorf("after %d records: record %s: %w", stored, key, err)
		default:
			stored++
		}
	}
	v.Text = fmt.Sprintf("stored %d records, kept %d that exist", stored, kept)
	return v, nil
}
