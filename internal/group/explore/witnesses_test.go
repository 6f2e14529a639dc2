package explore

import (
	"slices"
)

// witnesses holds a path for each guard that a small world needs.
var witnesses = map[string]witness{
	"reap: dead":                {scenario: "more at once", seed: 27},
	"reap: delete member":       {scenario: "more at once", seed: 27},
	"reap: leader as known":     {scenario: "another writer", seed: 52},
	"claim: alive":              {scenario: "all at once", seed: 12},
	"claim: first claims":       {scenario: "a reply is lost", seed: 492},
	"claim: free ends":          {scenario: "a reply is lost", seed: 170},
	"claim: set ends":           {scenario: "a reply is lost", seed: 170},
	"claim: plan as known":      {scenario: "a live session expires", seed: 309},
	"claim: set claims":         {scenario: "a reply is lost", seed: 170},
	"elect: dead":               {scenario: "drains", seed: 256},
	"elect: first leader":       {scenario: "a cold start and a drain", seed: 3811},
	"elect: free seat":          {scenario: "a cold start on a store that lags", seed: 62},
	"elect: seat as known":      {scenario: "another writer", seed: 192},
	"elect: set leader":         {scenario: "drains", seed: 120},
	"accept: free seat":         {scenario: "all at once", seed: 68},
	"accept: leader as known":   {scenario: "drains", seed: 8574},
	"join: first member":        {scenario: "a cold start", seed: 344},
	"join: free instance":       {scenario: "all at once", seed: 77},
	"name successors: set seat": {scenario: "a cold start and a drain", seed: 245},
	"operate: first control":    {scenario: "more at once", seed: 59},
	"operate: first definition": {scenario: "a cold start of two revisions", seed: 65},
	"operate: set control":      {scenario: "more at once", seed: 279},
	"operate: set definition":   {scenario: "more at once", seed: 13},
	"plan: dead":                {scenario: "a cold start on a store that lags", seed: 3862},
	"plan: delete claims":       {scenario: "a late member on a store that lags", steps: deletesUnseenClaims},
	"plan: first plan":          {scenario: "a cold start", seed: 503},
	"plan: leader as known":     {scenario: "another writer", seed: 38},
	"plan: no claims":           {scenario: "a late member on a store that lags", steps: movesUnseenRun},
	"plan: set control":         {scenario: "more at once", seed: 125},
	"plan: set plan":            {scenario: "a store that lags", seed: 425},
	"resign: alive":             {scenario: "more at once", seed: 41},
	"resign: delete seat":       {scenario: "drains", seed: 88},
	"resign: set leader":        {scenario: "drains", seed: 88},
	"publish: alive":            {scenario: "more at once", seed: 573},
	"operate: first kind":       {scenario: "kinds of three revisions", steps: storesOlderKindFirst},
	"operate: set kind":         {scenario: "kinds of three revisions", steps: storesOlderKind},
	"define: first defined":     {scenario: "a job is defined and instances crash", steps: definesDeletedJob},
	"define: set defined":       {scenario: "a defined job is deleted and a leader crashes", steps: definesDeletedJobAgain},
	"undefine: set defined":     {scenario: "a defined job is deleted and a leader crashes", steps: deletesNextCreation},
	"plan: defined as known":    {scenario: "a job is defined and deleted on a store that lags", seed: 5},
	"publish: set member":       {scenario: "a member publishes its record", steps: appliesOldRecord},
}

// c joins and is assigned a shard.
var joinsLate = []string{
	"c opens a session", "c requests to join", "c join arrives", "c join is answered",
	"a observes instances", "a observes members", "a plans", "a plan arrives", "a plan is answered",
	"a plans", "a plan arrives", "a plan is answered",
}

// b becomes leader and takes c for expired, since it observes the instances as before c joined.
var leadsByStaleView = []string{
	"a crashes", "session s1 expires",
	"b observes election", "b requests the seat", "b elect arrives", "b elect is answered", "b observes election",
	"b observes stale instances", "b observes members and jobs for the first time", "b observes plan", "b plans",
}

// b finds no claims of c. Then c claims a run and expires, and b's plan moves the shard without it.
var movesUnseenRun = slices.Concat(joinsLate, leadsByStaleView, []string{
	"time passes", "c observes plan", "c claims", "c claim arrives", "c crashes", "session s3 expires", "b plan arrives",
})

// The same with an earlier claim of c, so that b deletes a claims record that has changed since.
var deletesUnseenClaims = slices.Concat(joinsLate, []string{
	"time passes", "c observes plan",
	"c claims", "c claim arrives", "c claim is answered", "c handler of shard 1 returns", "c claims", "c claim arrives", "c claim is answered",
}, leadsByStaleView, []string{
	"time passes", "c claims", "c claim arrives", "c crashes", "session s3 expires", "b plan arrives",
})

// An abandoned update of b's member record arrives after b began to drain, and b is assigned a shard that
// it will not run.
var appliesOldRecord = []string{
	"time passes", "b claims", "b claim arrives", "b claim is answered", "b 's session expires", "b detects that its session is lost",
	"b opens a session", "b requests to join", "b join arrives", "b join is answered", "b handler of shard 1 returns",
	"b publishes its member record", "b loses the reply to publish", "b publish arrives", "b publish is answered",
	"b drains", "b publishes its member record", "b publish arrives", "b publish is answered", "an abandoned request arrives",
	"a observes instances", "a observes members", "a plans", "a plan arrives", "a plan is answered", "b observes plan",
}

// Two processes find no record of the kind, and that of the older revision is stored last.
var storesOlderKindFirst = []string{
	"a opens a session", "b opens a session", "a stores its definition", "b stores its definition", "b define arrives", "a define arrives",
}

// Two processes find the first revision of the kind, and the second is stored after the third.
var storesOlderKind = []string{
	"a opens a session", "a stores its definition", "a define arrives", "b opens a session", "b stores its definition",
	"c opens a session", "c stores its definition", "c define arrives", "b define arrives",
}

// A late duplicate of a definition arrives after the job was deleted.
var definesDeletedJob = []string{
	"a defines the job", "a loses the reply to definition as data", "a definition as data arrives",
	"b deletes the job", "b deletion arrives", "an abandoned request arrives",
}

// The same with a job that was defined and deleted before.
var definesDeletedJobAgain = slices.Concat([]string{"a deletes the job", "a deletion arrives", "a deletion is answered", "a learns that no run"}, definesDeletedJob)

// A late duplicate of a deletion arrives after the job was defined again.
var deletesNextCreation = []string{
	"a deletes the job", "a loses the reply to deletion", "a deletion arrives", "a deletion is answered",
	"b defines the job", "b definition as data arrives", "an abandoned request arrives",
}
