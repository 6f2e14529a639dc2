package dump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/registry"
)

// RestoreCommand returns the command restore.
func RestoreCommand(s *settings.Settings) *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "restore FILE",
		Short: "Store the definitions and intents of a dump that are missing or cannot be read",
		Long: `Restore reads a dump (- is the standard input), and stores its definitions and intents in the group:
pauses, stopped schedules, and what is disabled. Records that exist are kept, unless they cannot be
read, or instances have restored them from memory. Pending triggers, watermarks, runs and checkpoints
are not restored: each job begins with its next fire, and one that was defined as data counts as
defined at the time of the restore. The record of the namespace is restored if it cannot be read.

The dump must have been made with --params. If the store is another one than the dump's, fences
of instances that join from then on are greater than those at the time of the dump, and the report of
instances that the store has lost the dumped records ends, as with rota acknowledge. The fleet may run.`,
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
			act := fmt.Sprintf("store up to %s of %s/%s", count.Of(len(entries), "record"), f.Namespace, f.Group)
			if err := s.Confirm(cmd, act); err != nil {
				return err
			}
			v, err := f.store(cmd.Context(), s, entries)
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
	now := record.InstantOf(time.Now())
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
		case dir == "defined":
			key = to.Defined(path.Base(segment))
			value, err = definedOf(r.Value, now)
		case dir == "kinds" && segment == record.CountsName:
			key = to.KindCounts()
			value, err = record.EncodeChecked(&record.KindCounts{}) // has leaders follow definitions, and count them
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
		if value != nil {
			entries[key] = value
		}
	}
	return entries, nil
}

// definitionOf returns the definition of a registered job, nil for a defined one: a leader stores that when the job wakes.
func definitionOf(text json.RawMessage) ([]byte, error) {
	def, j, err := record.DecodeDefinition(text)
	if err != nil || j.Created != "" {
		return nil, err
	}
	return record.EncodeChecked(def)
}

// definedOf returns what operators want of a defined job, as if it had been defined now, nil if they have deleted it.
func definedOf(text json.RawMessage, now record.Instant) ([]byte, error) {
	d, err := record.DecodeDefined(text)
	if err != nil || d.IsDeleted() {
		return nil, err
	}
	if d.At = now; d.Next != 0 {
		d.Next = max(d.Next, now)
	}
	d.Changed, d.Earlier, d.Rest = 0, nil, nil
	return record.EncodeChecked(d)
}

func groupControlOf(text json.RawMessage) ([]byte, error) {
	c, err := record.DecodeGroupControl(text)
	if err != nil {
		return nil, err
	}
	return record.EncodeChecked(c)
}

// controlOf returns the intent of a control record, without requests.
func controlOf(text json.RawMessage) ([]byte, error) {
	c, err := record.DecodeControl(text)
	if err != nil {
		return nil, err
	}
	return record.EncodeChecked(c.WithoutRequests())
}

// controlOfPlan returns the intent in a plan, for a job that had no control record. The pause of the group has a record
// of its own.
func controlOfPlan(text json.RawMessage) ([]byte, error) {
	p, err := record.DecodePlan(text)
	if err != nil {
		return nil, err
	}
	return record.EncodeChecked(p.Intent())
}

// continueDumped makes the store's namespace the successor of the dumped one: its fences are higher, and a loss of the
// dumped records is acknowledged. It reports whether there was one. A dump of another namespace changes nothing.
func (f *File) continueDumped(ctx context.Context, s *settings.Settings, reg registry.Registry) (acknowledged bool, err error) {
	var dumped record.Meta
	for _, r := range f.Records {
		if r.Key == "meta" && r.Value != nil {
			dumped, err = record.DecodeMeta(r.Value)
		}
	}
	if err != nil || dumped.ID == "" || f.Namespace != s.Namespace {
		return false, err
	}
	to, err := record.NewKeys(s.Namespace, s.Group)
	if err != nil {
		return false, err
	}
	for {
		meta := record.Meta{Format: record.Format, ID: record.NewMetaID()}
		e, err := reg.Get(ctx, to.Meta(), registry.ReadOptions{Fresh: true})
		exists := err == nil
		if exists {
			meta, err = record.DecodeMeta(e.Value)
		}
		if exists && isDamaged(err) {
			value, err := record.EncodeChecked(dumped)
			if err == nil {
				_, err = registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Set(to.Meta(), e.Modified, value)}})
			}
			if errors.Is(err, registry.ErrConflict) {
				continue
			}
			return false, err
		}
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return false, err
		}
		acknowledged = meta.Incident != nil && dumped.Continues(meta.Incident.From)
		if meta.ID == dumped.ID || meta.Continues(dumped.ID) && !acknowledged {
			return false, nil // the store that was dumped, or its known successor
		}
		if acknowledged {
			meta.Incident = nil
		}
		meta.Replace(append(slices.Clone(dumped.Former), dumped.ID)...)
		meta.RaiseFences(f.Fence)
		value, err := record.EncodeChecked(meta)
		if err != nil {
			return false, err
		}
		op := registry.Create(to.Meta(), value)
		if exists {
			op = registry.Set(to.Meta(), e.Modified, value)
		}
		_, err = registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{op}})
		if !errors.Is(err, registry.ErrConflict) {
			return acknowledged, err
		}
	}
}

// isDamaged reports whether an error of a decoder is about the record, and not about its format, which is that of a newer version.
func isDamaged(err error) bool { return err != nil && !errors.Is(err, record.ErrNewerFormat) }

// replaceWorse replaces a record that exists and cannot be read, or that instances have written from what little they remembered. It
// reports whether it has.
func replaceWorse(ctx context.Context, reg registry.Registry, key registry.Key, value []byte, to record.Keys) (replaced bool, err error) {
	e, err := reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrForeign) || errors.Is(err, registry.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var damage error
	var acts record.Acts
	switch {
	case key == to.GroupControl() || key.Dir() == to.Controls():
		acts, damage = to.DecodeActs(key, e.Value)
	case key.Dir() == to.Jobs():
		_, _, damage = record.DecodeDefinition(e.Value)
	case key == to.KindCounts():
		return false, nil // leaders replace one that cannot be read
	default:
		_, damage = record.DecodeDefined(e.Value)
	}
	if !isDamaged(damage) && !acts.AreFromMemory() {
		return false, nil
	}
	_, err = registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Set(key, e.Modified, value)}})
	if errors.Is(err, registry.ErrConflict) {
		return false, nil // another writer has mended it
	}
	return err == nil, err
}

// store creates the records that do not exist, and replaces those that cannot be read.
func (f *File) store(ctx context.Context, s *settings.Settings, entries map[registry.Key][]byte) (view.Done, error) {
	s.AllowWrites()
	reg, err := s.Connect(ctx)
	if err != nil {
		return view.Done{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	to, err := record.NewKeys(s.Namespace, s.Group)
	if err != nil {
		return view.Done{}, err
	}
	stored, kept, replaced := 0, 0, 0
	v := view.Done{Version: view.Version, Verb: "restore", Jobs: []string{}}
	// Intents come before definitions (control sorts before jobs): a job is not to run between the two.
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		_, err := registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Create(key, entries[key])}})
		switch {
		case errors.Is(err, registry.ErrConflict):
			mended, err := replaceWorse(ctx, reg, key, entries[key], to)
			if err != nil {
				return v, fmt.Errorf("after %s: record %s: %w", count.Of(stored, "record"), key, err)
			}
			if mended {
				replaced++
			} else {
				kept++
			}
		case err != nil:
			return v, fmt.Errorf("after %s: record %s: %w", count.Of(stored, "record"), key, err)
		default:
			stored++
		}
	}
	acknowledged, err := f.continueDumped(ctx, s, reg)
	if err != nil {
		return v, fmt.Errorf("after %s: %w", count.Of(stored, "record"), err)
	}
	v.Text = fmt.Sprintf("stored %s, kept %d as they are", count.Of(stored, "record"), kept)
	if replaced > 0 {
		v.Text += fmt.Sprintf(", replaced %d that could not be read or were restored from memory", replaced)
	}
	if acknowledged {
		v.Text += "; the loss of records is acknowledged"
	}
	return v, nil
}
