package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/operator"
)

func TestCheckOf_NamesTheReasonsForItsResultFirst(t *testing.T) {
	st := operator.GroupStatus{Leader: operator.LeaderStatus{Instance: "a"}, Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}}}
	for i := range 6 {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: fmt.Sprint("bad", i), Problem: "strategy fails"})
	}
	c := CheckOf(st, CheckLimits{MaxLate: time.Minute, MinInstances: 3, MinJobs: 20})
	assert.Equal(t, CheckCritical, c.Code)
	assert.Equal(t, []string{"6 jobs, at least 20 expected", "1 live instance, at least 3 expected", "bad0: strategy fails"}, c.Reasons[:3])
	assert.Len(t, c.Reasons, 8)
}
