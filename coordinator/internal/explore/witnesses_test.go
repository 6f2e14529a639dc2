package explore

import (
	"slices"
)

// witnesses are ways that were found.
var witnesses = map[string]witness{
	"bury: dead":                   {scenario: "more at once", seed: 27},
	"bury: delete member":          {scenario: "more at once", seed: 27},
	"bury: leader as known":        {scenario: "another hand", seed: 52},
	"claim: alive":                 {scenario: "all at once", seed: 12},
	"claim: first claims":          {scenario: "a reply is lost", seed: 492},
	"claim: plan as known":         {scenario: "a live session expires", seed: 309},
	"claim: set claims":            {scenario: "a reply is lost", seed: 170},
	"elect: dead":                  {scenario: "drains", seed: 256},
	"elect: first leader":          {scenario: "a cold start and a drain", seed: 3811},
	"elect: free present":          {scenario: "a cold start on a store that lags", seed: 62},
	"elect: present as known":      {scenario: "another hand", seed: 192},
	"elect: set leader":            {scenario: "drains", seed: 120},
	"enter: free present":          {scenario: "all at once", seed: 68},
	"enter: leader as known":       {scenario: "drains", seed: 8574},
	"join: first member":           {scenario: "a cold start", seed: 344},
	"join: free instance":          {scenario: "all at once", seed: 77},
	"name successors: set present": {scenario: "a cold start and a drain", seed: 245},
	"operate: first control":       {scenario: "more at once", seed: 27},
	"operate: first definition":    {scenario: "a cold start of two revisions", seed: 65},
	"operate: set control":         {scenario: "more at once", seed: 279},
	"operate: set definition":      {scenario: "more at once", seed: 13},
	"plan: dead":                   {scenario: "a cold start on a store that lags", seed: 3862},
	"plan: delete claims":          {scenario: "a late one on a store that lags", way: deletedUnseen},
	"plan: first plan":             {scenario: "a cold start", seed: 503},
	"plan: leader as known":        {scenario: "another hand", seed: 38},
	"plan: no claims":              {scenario: "a late one on a store that lags", way: claimedUnseen},
	"plan: set control":            {scenario: "more at once", seed: 125},
	"plan: set plan":               {scenario: "a store that lags", seed: 425},
	"resign: alive":                {scenario: "more at once", seed: 41},
	"resign: delete present":       {scenario: "drains", seed: 88},
	"resign: set leader":           {scenario: "drains", seed: 88},
	"tell: alive":                  {scenario: "more at once", seed: 573},
	"tell: set member":             {scenario: "what a member says of itself", way: saidAnew},
}

// c joins, and is given a shard.
var joinsLate = []string{
	"c joins", "c asks to enter", "c join arrives", "c join is answered",
	"a hears of instances", "a hears of members", "a plans", "a lead arrives", "a lead is answered",
	"a plans", "a lead arrives", "a lead is answered",
}

// b comes to lead, and takes c for dead, because it is shown the instances of before c joined.
var leadsBlind = []string{
	"a crashes", "session s1 ends",
	"b hears of election", "b runs for office", "b elect arrives", "b elect is answered", "b hears of election",
	"b hears of instances as they were", "b hears of members and jobs for the first time", "b hears of plan", "b plans",
}

// Such a leader finds no claims of c; then c makes one, and dies.
var claimedUnseen = slices.Concat(joinsLate, leadsBlind, []string{
	"time passes", "c hears of plan", "c claims", "c claim arrives", "c crashes", "session s3 ends", "b lead arrives",
})

// The same, when c has claimed before.
var deletedUnseen = slices.Concat(joinsLate, []string{
	"time passes", "c hears of plan",
	"c claims", "c claim arrives", "c claim is answered", "c function of shard 1 returns", "c claims", "c claim arrives", "c claim is answered",
}, leadsBlind, []string{
	"time passes", "c claims", "c claim arrives", "c crashes", "session s3 ends", "b lead arrives",
})

// What b had said before it drained arrives once more, and it is given a shard that it will
// not run.
var saidAnew = []string{
	"time passes", "b claims", "b claim arrives", "b claim is answered", "b 's session expires", "b learns that its session is lost",
	"b joins", "b asks to enter", "b join arrives", "b join is answered", "b function of shard 1 returns",
	"b tells what it is", "b loses the answer to tell", "b tell arrives", "b tell is answered",
	"b drains", "b tells what it is", "b tell arrives", "b tell is answered", "a request that was given up arrives",
	"a hears of instances", "a hears of members", "a plans", "a lead arrives", "a lead is answered", "b hears of plan",
}
