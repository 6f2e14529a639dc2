package api

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/role"
)

// route is a row of the table of routes.
type route struct {
	method, path string
	needs        role.Role
	short        string
	query        reflect.Type // of the parameters
	verb         *acts.Verb   // of an act
	answer       reflect.Type // of the JSON; nil: a document or a stream
	media        string       // of the answer
	serve        func(*call, http.ResponseWriter) error
}

// lookAt returns the route of a look: read returns its view for the parameters Q.
func lookAt[Q, V any](path string, least role.Role, short string, read func(*call, Q) (V, error)) route {
	return route{
		method: http.MethodGet, path: path, needs: least, short: short,
		query: reflect.TypeFor[Q](), answer: reflect.TypeFor[V](), media: "application/json",
		serve: func(c *call, w http.ResponseWriter) error {
			var q Q
			if err := parseQuery(c.r.URL.RawQuery, &q); err != nil {
				return err
			}
			ctx, cancel := contextWith(c.r.Context(), lookTimeout)
			defer cancel()
			c.r = c.r.WithContext(ctx)
			v, err := read(c, q)
			if err != nil {
				return err
			}
			return c.answer(w, v)
		},
	}
}

// routesOf returns the table of routes.
func routesOf(verbs []acts.Verb) []route {
	routes := []route{
		lookAt("/jobs", role.Look, "List jobs, sorted by name", readJobs),
		lookAt("/jobs/{job}", role.Look, "Show a job", func(c *call, _ struct{}) (view.JobDetail, error) {
			return look.Job(c.r.Context(), c.Op, c.job())
		}),
		lookAt("/jobs/{job}/shards", role.Look, "List the shards of a job", readShards),
		lookAt("/jobs/{job}/fires", role.Look, "List fires of a job that have ended, from the history", readFires),
		lookAt("/jobs/{job}/runs", role.Look, "List runs of a job that have ended, from the history: the last of each shard, of a fire, failed or slow ones", readRuns),
		lookAt("/jobs/{job}/logs", role.Reveal, "List the lines of the logs of runs, from the history: those of the latest fire that has one, or those that are selected", readLogs),
		lookAt("/jobs/{job}/explain", role.Look, "Explain why a fire has run or has not", readExplanation),
		lookAt("/jobs/{job}/next", role.Look, "List the next fires of a job", func(c *call, q nextQuery) (view.Next, error) {
			return look.Next(c.r.Context(), c.Op, c.job(), q.Count)
		}),
		lookAt("/definitions", role.Look, "List the jobs that are defined as data, in the order of their records; the header Link leads on", readDefinitions),
		lookAt("/definitions/{job}", role.Look, "Show a job that is defined as data", func(c *call, _ struct{}) (view.Definition, error) {
			return look.Definition(c.r.Context(), c.Op, c.job())
		}),
		lookAt("/kinds", role.Look, "List the kinds of which jobs can be defined as data", func(c *call, q paging) (view.Kinds, error) {
			v, err := look.Kinds(c.r.Context(), c.Op)
			v.Kinds = pageOf(c, q, v.Kinds)
			return v, err
		}),
		lookAt("/instances", role.Look, "List the instances", func(c *call, q paging) (view.Instances, error) {
			st, err := c.Snapshot(c.r.Context())
			v := view.InstancesOf(st)
			v.Instances = pageOf(c, q, v.Instances)
			return v, err
		}),
		lookAt("/pools", role.Look, "List the pools, which bound the runs of jobs over the group", func(c *call, q paging) (view.Pools, error) {
			v, err := look.Pools(c.r.Context(), c.Op)
			v.Pools = pageOf(c, q, v.Pools)
			return v, err
		}),
		lookAt("/decisions", role.Look, "List the latest decisions of leaders about a job, or about the jobs that are late, without an owner or with a problem", readDecisions),
		lookAt("/acts", role.Look, "List the latest acts on all jobs of the group, and on a job", func(c *call, q jobQuery) (view.Acts, error) {
			return look.Acts(c.r.Context(), c.Op, q.Job)
		}),
		lookAt("/check", role.Look, "Check the group, for monitoring; a failure to read it is a result", readCheck),
		lookAt("/diagnosis", role.Look, "Check the records of the group", func(c *call, q paging) (view.Diagnosis, error) {
			d, err := c.Diagnose(c.r.Context())
			d.Findings = pageOf(c, q, d.Findings)
			return view.Diagnosis{Version: view.Version, Diagnosis: d}, err
		}),
		lookAt("/moves", role.Look, "Show which shards the leader would move, without or with more instances", readMoves),
		{
			method: http.MethodGet, path: "/watch", needs: role.Look, short: "Stream the jobs that change",
			query: reflect.TypeFor[watchQuery](), media: "text/event-stream", serve: serveWatch,
		},
		{
			method: http.MethodGet, path: "/openapi.json", needs: role.Look, short: "Describe this interface",
			query: reflect.TypeFor[struct{}](), media: "application/json", serve: func(_ *call, w http.ResponseWriter) error {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(openAPI) // the client has gone
				return nil
			},
		},
	}
	for i := range verbs {
		routes = append(routes, actOf(&verbs[i]))
	}
	return routes
}

type jobsQuery struct {
	Glob  glob     `query:"glob" doc:"a pattern for the names of jobs, such as tenant-*"`
	State jobState `query:"state" doc:"only jobs in this state"`
	paging
}

func readJobs(c *call, q jobsQuery) (view.Jobs, error) {
	st, err := c.Snapshot(c.r.Context())
	if err != nil {
		return view.Jobs{}, err
	}
	from := (q.Page - 1) * q.Limit
	v, total := view.JobsPage(st, view.JobsFilter{Glob: string(q.Glob), State: string(q.State)}, from, from+q.Limit)
	c.setPage(q.paging, total)
	return v, nil
}

type definitionsQuery struct {
	Kind   string `query:"kind" doc:"only jobs of this kind"`
	Prefix string `query:"prefix" doc:"only jobs whose names begin with this text"`
	After  string `query:"after" doc:"where the page begins, as the Link of the one before has it"`
	Limit  int    `query:"limit" default:"100" min:"1" max:"1000" doc:"jobs of a page; one that selects among many jobs may have fewer, and a next page"`
}

func readDefinitions(c *call, q definitionsQuery) (view.Definitions, error) {
	v, next, err := look.DefinitionsPage(c.r.Context(), c.Op, look.DefinitionsQuery{Kind: q.Kind, Prefix: q.Prefix, After: q.After, Limit: q.Limit})
	c.nextCursor = next
	return v, err
}

type shardsQuery struct {
	Owner string `query:"owner" doc:"only shards of this instance"`
	Shard shards `query:"shard" doc:"only these shards"`
	paging
}

func readShards(c *call, q shardsQuery) (view.Shards, error) {
	v, err := look.Shards(c.r.Context(), c.Op, c.job(), q.Owner, q.Shard)
	v.Shards = pageOf(c, q.paging, v.Shards)
	return v, err
}

type firesQuery struct {
	Since  age  `query:"since" default:"1d" doc:"how far back"`
	Failed bool `query:"failed" doc:"only fires with a run that did not succeed"`
	Limit  int  `query:"limit" default:"100" min:"1" max:"1000" doc:"the most fires to read"`
}

func readFires(c *call, q firesQuery) (view.Fires, error) {
	if c.History == nil {
		return view.Fires{}, problemOf(noHistory, "it was started without one")
	}
	v, known, err := look.Fires(c.r.Context(), c.History, look.FiresQuery{Job: c.job(), Age: time.Duration(q.Since), Failed: q.Failed, Limit: q.Limit})
	if err != nil {
		return v, historyError{err}
	}
	if !known {
		v.Note, err = c.describeUnknown()
	}
	return v, err
}

// describeUnknown returns a note about a job of which the history has nothing, or an error if the fleet does not have it either.
func (c *call) describeUnknown() (string, error) {
	if _, err := c.Op.Intent(c.r.Context(), c.job()); err != nil {
		return "", err
	}
	return fmt.Sprintf("The history has nothing of job %q.", c.job()), nil
}

type runsQuery struct {
	Fire    time.Time `query:"fire" doc:"the instant of a fire: only its runs"`
	Trigger uint64    `query:"trigger" doc:"with fire: only the runs of the trigger of that number"`
	Shard   shards    `query:"shard" doc:"only these shards"`
	Since   age       `query:"since" default:"1d" doc:"with failed and slowest: how far back"`
	Failed  bool      `query:"failed" doc:"runs that did not succeed, the latest first"`
	Slowest bool      `query:"slowest" doc:"the longest runs"`
	paging
}

// maxRead bounds the runs that are read for a page of the latest or the longest ones.
const maxRead = 10_000

func readRuns(c *call, q runsQuery) (view.HistoryRuns, error) {
	var none view.HistoryRuns
	switch {
	case c.History == nil:
		return none, problemOf(noHistory, "it was started without one")
	case q.Failed && q.Slowest, !q.Fire.IsZero() && (q.Failed || q.Slowest):
		return none, problemOf(invalidArgument, "fire, failed and slowest exclude each other")
	case q.Trigger != 0 && q.Fire.IsZero():
		return none, wrong(invalidArgument, "trigger", "trigger needs fire")
	case (q.Failed || q.Slowest) && q.Page*q.Limit > maxRead:
		return none, wrong(invalidArgument, "page", fmt.Sprintf("page times limit is at most %d here", maxRead))
	}
	v, known, err := look.Runs(c.r.Context(), c.History, look.RunsQuery{
		Job: c.job(), OfFire: !q.Fire.IsZero(), Fire: q.Fire, Trigger: q.Trigger, Failed: q.Failed, Slowest: q.Slowest, Shards: q.Shard,
		Age: time.Duration(q.Since), Limit: q.Page*q.Limit + 1,
	})
	if err != nil {
		return none, historyError{err}
	}
	if v.Runs = pageOf(c, q.paging, v.Runs); q.Failed || q.Slowest {
		c.total = -1 // they were not all read
	}
	if !known {
		v.Note, err = c.describeUnknown()
	}
	return v, err
}

type logsQuery struct {
	Fire    time.Time `query:"fire" doc:"the instant of a fire: only its runs"`
	Trigger uint64    `query:"trigger" doc:"only the runs of the trigger of that number"`
	Shard   shards    `query:"shard" doc:"only these shards"`
	Run     string    `query:"run" doc:"only the run of this ID"`
	Since   age       `query:"since" doc:"only lines that were written so long ago at most; to follow logs, repeat it with 15s and leave out known lines"`
	paging
}

// logPieces is how many pieces of logs a query of the history reads: a piece has up to 16 KiB.
const logPieces = 256

func readLogs(c *call, q logsQuery) (view.Logs, error) {
	switch {
	case c.History == nil:
		return view.Logs{}, problemOf(noHistory, "it was started without one")
	case !look.HasLogs(c.History):
		return view.Logs{}, problemOf(noLogs, look.WithoutLogs)
	case q.Page*q.Limit > maxRead:
		return view.Logs{}, wrong(invalidArgument, "page", fmt.Sprintf("page times limit is at most %d here", maxRead))
	}
	of := history.LogQuery{Job: c.job(), Fire: q.Fire, Trigger: q.Trigger, Shards: q.Shard, Run: q.Run, Limit: logPieces}
	if q.Since > 0 {
		of.Since = time.Now().Add(-time.Duration(q.Since))
	}
	of.Latest = q.Fire.IsZero() && q.Trigger == 0 && q.Run == "" && q.Since == 0
	v, known, err := look.Logs(c.r.Context(), c.History, of, q.Page*q.Limit+1)
	if err != nil {
		return view.Logs{}, historyError{err}
	}
	v.Lines = pageOf(c, q.paging, v.Lines)
	c.total = -1 // they were not all read
	if !known {
		v.Note, err = c.describeUnknown()
	}
	return v, err
}

type explainQuery struct {
	Shard int       `query:"shard" default:"-1" min:"-1" max:"1000000" doc:"the shard; -1: all"`
	At    time.Time `query:"at" doc:"the instant of the fire; without it, the newest one that has come due"`
}

func readExplanation(c *call, q explainQuery) (view.Explanation, error) {
	v, ofHistory, err := look.Explain(c.r.Context(), c.Op, c.History, c.job(), q.Shard, q.At)
	if ofHistory != nil {
		c.Logger.Warn("an explanation is without the history, which did not answer", "job", c.job(), "error", ofHistory)
	}
	return v, err
}

type nextQuery struct {
	Count int `query:"count" default:"5" min:"1" max:"1000" doc:"number of fires"`
}

type jobQuery struct {
	Job string `query:"job" doc:"a job"`
}

type decisionsQuery struct {
	jobQuery
	paging
}

// readDecisions reads the status of each job of a page. There is no Total-Count: the pages are of jobs.
func readDecisions(c *call, q decisionsQuery) (view.Decisions, error) {
	jobs := []string{q.Job}
	if q.Job == "" {
		st, err := c.Snapshot(c.r.Context())
		if err != nil {
			return view.Decisions{}, err
		}
		jobs = look.TroubledJobs(st)
	}
	jobs = pageOf(c, q.paging, jobs)
	c.total = -1
	return look.Decisions(c.r.Context(), c.Op, jobs)
}

type checkQuery struct {
	Glob         glob `query:"glob" doc:"a pattern for the names of jobs"`
	MaxLate      age  `query:"max_late" default:"5m" doc:"how long a fire may be due and not claimed"`
	MinJobs      int  `query:"min_jobs" default:"1" min:"0" max:"1000000" doc:"the least number of jobs that are found"`
	MinInstances int  `query:"min_instances" default:"1" min:"0" max:"1000000" doc:"the least number of live instances"`
	paging
}

func readCheck(c *call, q checkQuery) (view.Check, error) {
	st, err := c.Snapshot(c.r.Context())
	if err != nil {
		c.Logger.Warn("a check could not read the group", "error", err)
		return view.CheckFailed(errors.New("the store did not answer"), time.Now()), nil
	}
	v := look.Check(c.r.Context(), c.Op, st, view.CheckLimits{
		Jobs: view.JobsFilter{Glob: string(q.Glob)}, MaxLate: time.Duration(q.MaxLate), MinJobs: q.MinJobs, MinInstances: q.MinInstances,
	})
	if v.Namespace == "" && !c.mayRead { // it failed, and the text may quote a record
		v.Reasons = []string{"the store did not answer"}
	}
	v.Jobs = pageOf(c, q.paging, v.Jobs)
	return v, nil
}

type movesQuery struct {
	jobQuery
	Without []string `query:"without" doc:"instances that are left out"`
	With    int      `query:"with" min:"0" max:"1000" doc:"how many instances are added"`
	Label   []string `query:"label" doc:"labels of the added instances, as zone=a"`
	paging
}

func readMoves(c *call, q movesQuery) (view.Moves, error) {
	labels := map[string]string{}
	for _, l := range q.Label {
		key, value, found := strings.Cut(l, "=")
		if !found {
			return view.Moves{}, wrong(invalidArgument, "label", fmt.Sprintf("%.40q is no label, as zone=a", l))
		}
		labels[key] = value
	}
	var options []operator.MovesOption
	switch {
	case q.With > 0:
		options = append(options, operator.With(q.With, labels))
	case len(labels) > 0:
		return view.Moves{}, wrong(invalidArgument, "label", "label needs with")
	}
	if len(q.Without) > 0 {
		options = append(options, operator.Without(slices.Clone(q.Without)...))
	}
	if q.Job != "" {
		options = append(options, operator.OfJob(q.Job))
	}
	p, err := c.Op.Moves(c.r.Context(), options...)
	p.Jobs = pageOf(c, q.paging, p.Jobs)
	return view.Moves{Version: view.Version, Preview: p}, err
}
