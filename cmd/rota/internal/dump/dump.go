// Package dump holds the commands that write the records of a group to a file, and that restore
// definitions and intents from it.
package dump

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/registry"
)

// File is a dump.
type File struct {
	Version   int       `json:"version"`
	At        time.Time `json:"at"`
	Namespace string    `json:"namespace"`
	Group     string    `json:"group"`
	Masked    bool      `json:"masked"`          // parameters are replaced by mask
	Fence     uint64    `json:"fence,omitempty"` // no fence was greater at that time
	Records   []Record  `json:"records"`
}

// Record is a record of a dump. One of Value and Raw is set.
type Record struct {
	Key   string          `json:"key"` // below the namespace
	Value json.RawMessage `json:"value,omitempty"`
	Raw   string          `json:"raw,omitempty"` // base64 of a value that is not JSON
}

// mask replaces parameters.
const mask = "***"

// Command returns the command dump.
func Command(s *settings.Settings) *cobra.Command {
	var withParams, withCheckpoints bool
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Write the records of the group as JSON",
		Long: `Dump writes the records of the group as JSON, for a bug report or for rota restore. Parameters of
jobs, shards and triggers are masked, unless --params is set. Error texts are not masked.

The records are read one directory after the other, so they are not a consistent backup: use the
store's own means for that.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := read(cmd.Context(), s, withCheckpoints)
			if err != nil {
				return s.ExplainFailure(err)
			}
			if len(f.Records) == 0 {
				return exit.Usagef("%s has no records of %s/%s: check -n, -g and the address of the registry", s.Registry, s.Namespace, s.Group)
			}
			if !withParams {
				f.maskParams()
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			e.SetEscapeHTML(false)
			return e.Encode(f)
		},
	}
	cmd.Flags().BoolVar(&withParams, "params", false, "include parameters, which may be secret")
	cmd.Flags().BoolVar(&withCheckpoints, "checkpoints", false, "include the checkpoints of shards")
	return settings.Limit(cmd, settings.Connection...)
}

// read reads the records of the group.
func read(ctx context.Context, s *settings.Settings, withCheckpoints bool) (*File, error) {
	reg, err := s.Connect(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := record.NewKeys(s.Namespace, s.Group)
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	f := &File{Version: view.Version, At: time.Now(), Namespace: s.Namespace, Group: s.Group, Records: []Record{}}
	meta, err := reg.Get(ctx, keys.Meta(), registry.ReadOptions{Fresh: true})
	if err == nil {
		f.add(meta)
		if m, err := record.DecodeMeta(meta.Value); err == nil {
			f.Fence = m.FenceBase
		}
	} else if !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	base, newest := f.Fence, uint64(0)
	list := func(dir registry.Key) ([]registry.Entry, error) {
		l, err := reg.List(ctx, dir, registry.ReadOptions{})
		newest = max(newest, l.Rev.Seq)
		for _, e := range l.Entries {
			f.add(e)
			newest = max(newest, e.Modified.Seq)
		}
		return l.Entries, err
	}
	read := map[registry.Key][]registry.Entry{}
	dirs := []registry.Key{
		keys.Instances(), keys.Election(), keys.Members(), keys.Kinds(), keys.Jobs(), keys.Controls(), keys.Plans(), keys.Ends(), keys.Pools(), keys.Demands(),
	}
	for bucket := range record.Buckets {
		dirs = append(dirs, keys.DefinedIn(bucket))
	}
	for _, dir := range dirs {
		if read[dir], err = list(dir); err != nil {
			return nil, err
		}
	}
	for _, inc := range incarnations(read[keys.Members()], read[keys.Plans()]) {
		if _, err := list(keys.ClaimsOf(inc)); err != nil {
			return nil, err
		}
	}
	if withCheckpoints {
		for _, e := range read[keys.Jobs()] {
			if _, err := list(keys.Data(e.Key.Name(), 0).Dir()); err != nil {
				return nil, err
			}
		}
	}
	f.Fence = base + newest
	return f, nil
}

// incarnations returns the incarnations that may have claims: members and owners.
func incarnations(members, plans []registry.Entry) (all []string) {
	for _, m := range members {
		all = append(all, m.Key.Name())
	}
	for _, e := range plans {
		if p, err := record.DecodePlan(e.Value); err == nil {
			for inc := range p.Owners {
				all = append(all, inc)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// add adds a record.
func (f *File) add(e registry.Entry) {
	r := Record{Key: strings.TrimPrefix(string(e.Key), f.Namespace+"/")}
	if value, err := record.Decode[json.RawMessage](e.Value); err == nil {
		r.Value = value
	} else {
		r.Raw = base64.StdEncoding.EncodeToString(e.Value)
	}
	f.Records = append(f.Records, r)
}

// maskParams replaces the parameters of jobs, shards and triggers, and checkpoints and values that are not
// JSON, which may have anything in them.
func (f *File) maskParams() {
	f.Masked = true
	for i := range f.Records {
		r := &f.Records[i]
		switch {
		case r.Raw != "":
			r.Raw = mask
		case strings.Contains(r.Key, "/data/"):
			r.Value = json.RawMessage(`"` + mask + `"`)
		default:
			r.Value = maskValue(r.Value)
		}
	}
}

// maskValue replaces the parameters in a JSON value. One without parameters is returned as it is.
func maskValue(text json.RawMessage) json.RawMessage {
	var v any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil || !maskIn(v) {
		return text
	}
	masked, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`"` + mask + `"`)
	}
	return masked
}

// maskIn replaces the parameters below v, and reports whether there were any.
func maskIn(v any) (found bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			found = maskIn(e) || found
		}
	case map[string]any:
		for name, e := range v {
			switch name {
			case "param":
				v[name], found = mask, true
			case "shard_params":
				if params, ok := e.(map[string]any); ok {
					for shard := range params {
						params[shard], found = mask, true
					}
				}
			default:
				found = maskIn(e) || found
			}
		}
	}
	return found
}
