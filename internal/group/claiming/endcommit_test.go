package claiming

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

func TestEnds_Commit(t *testing.T) {
	tracked := &record.Plan{Epochs: []record.Epoch{{Number: 1}}}
	claimsOnly, err := record.NewEpoch(1, 0, []byte(`{"name":"job","shards":1,"tracking":"claims"}`))
	require.NoError(t, err)
	untracked := &record.Plan{Epochs: []record.Epoch{claimsOnly}}
	followed := &record.Plan{Epochs: tracked.Epochs, Fires: &record.Fires{}}
	var nothing, claims, runs Decision
	claims.RestsOnPlan = true
	runs.Claims.Running = record.Runs{{}}
	const short, long = MaxCarryDelay, MaxCarryDelay + 1
	for says, row := range map[string]struct {
		ends Ends
		want EndCommit
	}{
		"An end waits for other ends":                                    {Ends{}, CommitWithOthers},
		"A move does not wait":                                           {Ends{Moving: true, Agenda: true}, CommitNow},
		"A due fire of the shard does not wait":                          {Ends{Awaited: true, Agenda: true}, CommitNow},
		"A run that is made again does not wait":                         {Ends{Retry: true, Agenda: true}, CommitNow},
		"The end of a short run waits for a claim that is due soon":      {Ends{Took: short, Agenda: true, ClaimIn: short}, CommitWithClaim},
		"The end of a long run waits for no claim":                       {Ends{Took: long, Agenda: true, ClaimIn: short}, CommitWithOthers},
		"A short run waits for no late claim":                            {Ends{Took: short, Agenda: true, ClaimIn: long}, CommitWithOthers},
		"A claim that is overdue is due soon":                            {Ends{Took: short, Agenda: true, ClaimIn: -time.Hour}, CommitWithClaim},
		"A short run of a job without a next claim waits for other ends": {Ends{Took: short, ClaimIn: -time.Hour}, CommitWithOthers},

		"After the decision the end still waits for other ends":               {Ends{Plan: tracked, Decision: &nothing}, CommitWithOthers},
		"Or for the claim, if it did":                                         {Ends{Plan: tracked, Decision: &nothing, Carried: true}, CommitWithClaim},
		"Neither wait goes on when its time is up":                            {Ends{Plan: tracked, Decision: &nothing, Carried: true, Flushing: true}, CommitNow},
		"A claim records the ends too":                                        {Ends{Plan: tracked, Decision: &claims}, CommitNow},
		"A move does not wait after the decision either":                      {Ends{Plan: tracked, Decision: &nothing, Moving: true}, CommitNow},
		"A process that drains commits each decision":                         {Ends{Plan: tracked, Decision: &nothing, Draining: true}, CommitNow},
		"The last end of a job that others follow does not wait":              {Ends{Plan: followed, Decision: &nothing}, CommitNow},
		"An end before the last of a job that others follow waits":            {Ends{Plan: followed, Decision: &runs}, CommitWithOthers},
		"A job that does not track runs has its ends in the next claim":       {Ends{Plan: untracked, Decision: &nothing}, CommitWithClaimOnly},
		"However long that takes":                                             {Ends{Plan: untracked, Decision: &nothing, Flushing: true}, CommitWithClaimOnly},
		"Unless a shard of it is to move":                                     {Ends{Plan: untracked, Decision: &nothing, Moving: true}, CommitNow},
		"Or the process drains":                                               {Ends{Plan: untracked, Decision: &nothing, Draining: true}, CommitNow},
		"Or it claims":                                                        {Ends{Plan: untracked, Decision: &claims}, CommitNow},
		"Ends of a job whose plan has gone wait for others":                   {Ends{Decision: &nothing}, CommitWithOthers},
		"Ends of a job whose plan has gone are committed when the time is up": {Ends{Decision: &nothing, Flushing: true}, CommitNow},
	} {
		t.Run(says, func(t *testing.T) { assert.Equal(t, row.want, row.ends.Commit()) })
	}
}
