package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// withFile are the flags of define itself that apply with --file.
var withFile = []string{"file", "prune", "prefix", "dry-run", "allow-unknown-kind", "allow-no-fires", "by", "reason"}

// checkForm checks that the command line has a job or a file, and no flag of the other form.
func (o *defineOptions) checkForm(f *pflag.FlagSet, args []string) (err error) {
	switch {
	case o.file == "" && len(args) == 0:
		return errors.New("0 arguments given; name a job, or a file with --file")
	case o.file == "" && (o.prune || o.prefix != ""):
		return errors.New("--prune and --prefix need --file")
	case o.file == "":
		return nil
	case len(args) > 0:
		return fmt.Errorf("%q: with --file, the file has the jobs", args[0])
	case o.prune && o.prefix == "":
		return errors.New("--prune needs --prefix: jobs whose names begin with it, and which the file does not have, are deleted")
	case o.prefix != "" && !o.prune:
		return errors.New("--prefix needs --prune")
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(defineOptions).addFlags(own)
	f.Visit(func(set *pflag.Flag) {
		if own.Lookup(set.Name) != nil && !slices.Contains(withFile, set.Name) {
			err = fmt.Errorf("--%s does not apply with --file", set.Name)
		}
	})
	return err
}

// filePlan are the changes that a file causes.
type filePlan struct {
	name    string
	file    *jobsfile.File
	changes []view.DefineChange   // in the order of the file, the deletions last
	define  []operator.Definition // without those that have no fire from now on
	delete  []string
}

// defineFile defines the jobs of a file. All is checked before anything is written, so that a file with a mistake changes nothing.
func (c *commands) defineFile(cmd *cobra.Command, o *defineOptions) error {
	p := &filePlan{name: o.file}
	if err := p.load(cmd, c, o); err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	if !o.dryRun {
		if err := c.s.CheckProtection(); err != nil {
			return err
		}
	}
	err := c.read(cmd, func(ctx context.Context, op *operator.Operator) error {
		if err := p.plan(ctx, op, o); err != nil || !o.dryRun || p.file.Pools == nil {
			return err
		}
		sizes, err := readPoolSizes(ctx, op)
		if err == nil {
			p.notePools(sizes, cmd.ErrOrStderr())
		}
		return err
	})
	if err != nil {
		return err
	}
	if o.dryRun {
		return c.printView(cmd, view.DefineChanges{Version: view.Version, DryRun: true, Changes: p.changes})
	}
	if len(p.delete) > 0 {
		if err := c.s.Confirm(cmd, "delete "+listSome(p.delete)+" with all records"); err != nil {
			return err
		}
	}
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		if p.file.Pools != nil {
			inForce, err := op.AddPools(ctx, p.file.Pools)
			if err != nil {
				return err
			}
			p.notePools(inForce, cmd.ErrOrStderr())
		}
		err := p.apply(ctx, op, o)
		return errors.Join(err, c.printView(cmd, view.DefineChanges{Version: view.Version, Changes: p.changes}))
	})
}

// listSome returns the first of names, and how many more there are.
func listSome(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more jobs", strings.Join(names[:most], ", "), len(names)-most)
}

// load reads the file. Its namespace and group apply unless the command line or the environment names them.
func (p *filePlan) load(cmd *cobra.Command, c *commands, o *defineOptions) error {
	content, err := readFile(cmd.InOrStdin(), o.file)
	if err != nil {
		return err
	}
	if p.name == "-" {
		p.name = "standard input"
	}
	if p.file, err = jobsfile.Load(p.name, content, jobsfile.Host{Schemes: c.s.Schemes}); err != nil {
		return err
	}
	if len(p.file.Defined) == 0 {
		return fmt.Errorf("%s: no job has a kind, so there is nothing to define; rota delete deletes jobs", p.name)
	}
	var outside []jobsfile.Problem
	for i := range p.file.Defined {
		if d := &p.file.Defined[i]; !strings.HasPrefix(d.Name, o.prefix) {
			outside = append(outside, d.Problem("name", fmt.Sprintf("the name does not begin with --prefix %q", o.prefix)))
		}
	}
	if len(outside) > 0 {
		return &jobsfile.Problems{File: p.name, All: outside}
	}
	if err := c.s.Resolve(); err != nil {
		return err
	}
	for _, of := range []struct {
		flag, inFile string
		setting      *string
	}{{"namespace", p.file.Namespace, &c.s.Namespace}, {"group", p.file.Group, &c.s.Group}} {
		if !cmd.Flags().Changed(of.flag) && c.s.Getenv("ROTA_"+strings.ToUpper(of.flag)) == "" {
			*of.setting = cmp.Or(of.inFile, *of.setting)
		}
	}
	return nil
}

// plan sets the changes, or returns all problems.
func (p *filePlan) plan(ctx context.Context, op *operator.Operator, o *defineOptions) error {
	defs := make([]operator.Definition, len(p.file.Defined))
	named := map[string]bool{}
	for i := range defs {
		defs[i] = p.file.Defined[i].Definition
		named[defs[i].Name] = true
	}
	stored := map[string]operator.DefinedJob{}
	for j, err := range op.Definitions(ctx) {
		switch {
		case err != nil:
			return err
		case j.State == operator.DefinedDeleting || j.State == operator.DefinedUnreadable:
		case named[j.Name]:
			stored[j.Name] = j
		case o.prune && strings.HasPrefix(j.Name, o.prefix):
			p.delete = append(p.delete, j.Name)
		}
	}
	slices.Sort(p.delete)
	results, err := op.DefineAll(ctx, defs, append(o.options(), operator.DryRun())...)
	past, err := p.explain(err)
	if err != nil {
		return err
	}
	for i := range defs {
		if past[defs[i].Name] {
			p.changes = append(p.changes, view.DefineChange{Job: defs[i].Name, Outcome: view.Past})
			continue
		}
		before := stored[defs[i].Name]
		p.define = append(p.define, defs[i])
		p.changes = append(p.changes, acts.DescribeDefine(&before, &defs[i], results[i]))
	}
	for _, job := range p.delete {
		p.changes = append(p.changes, view.DefineChange{Job: job, Outcome: view.Deleted})
	}
	return nil
}

// readPoolSizes returns the sizes of the pools that have one.
func readPoolSizes(ctx context.Context, op *operator.Operator) (map[string]int, error) {
	stored, err := op.Pools(ctx)
	sizes := map[string]int{}
	for i := range stored {
		if stored[i].Sized {
			sizes[stored[i].Pool] = stored[i].Size
		}
	}
	return sizes, err
}

// notePools notes the pools of the file that have another size, and those that have none yet.
func (p *filePlan) notePools(sizes map[string]int, notes io.Writer) {
	for _, pool := range slices.Sorted(maps.Keys(p.file.Pools)) {
		want := p.file.Pools[pool]
		switch size, sized := sizes[pool]; {
		case !sized:
			fmt.Fprintf(notes, "note: pool %s gets size %d\n", pool, want)
		case size != want:
			fmt.Fprintf(notes, "note: pool %s keeps size %d; %s has %d, which rota set-pool would set\n", pool, size, p.name, want)
		}
	}
}

// apply makes the changes, and removes from the plan those that were not made. Jobs are deleted once all others are defined.
func (p *filePlan) apply(ctx context.Context, op *operator.Operator, o *defineOptions) error {
	results, err := op.DefineAll(ctx, p.define, o.options()...)
	of := map[string]operator.DefineResult{}
	for _, r := range results {
		of[r.Name] = r
	}
	past, err := p.explain(err)
	failed := map[string]bool{}
	if err == nil {
		err = op.DeleteAll(ctx, p.delete)
		for _, e := range acts.ErrorsByJob(err) {
			failed[e.Job] = true
		}
		err = refusedDefinition(err)
	} else {
		for _, job := range p.delete {
			failed[job] = true
		}
	}
	p.changes = slices.DeleteFunc(p.changes, func(c view.DefineChange) bool {
		if c.Outcome == view.Deleted {
			return failed[c.Job]
		}
		return c.Outcome != view.Past && of[c.Job].Outcome == "" && !past[c.Job]
	})
	for i := range p.changes {
		switch c := &p.changes[i]; {
		case past[c.Job]:
			*c = view.DefineChange{Job: c.Job, Outcome: view.Past} // since the plan was made
		case of[c.Job].Outcome != "":
			c.Outcome, c.Revision, c.NextFire = of[c.Job].Outcome, of[c.Job].Revision, of[c.Job].NextFire
		}
	}
	return err
}

// explain returns the jobs that an error of DefineAll refuses because they have no fire from now on, and all other refusals with their
// places in the file. Another failure, such as one of the store, is returned as it is.
func (p *filePlan) explain(err error) (past map[string]bool, rest error) {
	past = map[string]bool{}
	problems := &jobsfile.Problems{File: p.name}
	of := map[string]*jobsfile.Defined{}
	for i := range p.file.Defined {
		of[p.file.Defined[i].Name] = &p.file.Defined[i]
	}
	code := exit.NotMet
	for _, e := range acts.ErrorsByJob(err) {
		switch refusal := exit.CodeOf(refusedDefinition(e.Err)); {
		case errors.Is(e.Err, operator.ErrNoFires):
			past[e.Job] = true
		case of[e.Job] == nil, refusal != exit.Usage && refusal != exit.NotMet:
			return past, err
		default:
			if refusal == exit.Usage {
				code = exit.Usage
			}
			field, rule := acts.FieldOf(e.Err)
			problems.All = append(problems.All, of[e.Job].Problem(field, rule))
		}
	}
	if len(problems.All) == 0 {
		return past, nil
	}
	problems.Sort()
	return past, &exit.Error{Code: code, Err: problems}
}
