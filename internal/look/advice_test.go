package look

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

func TestAdviceOf(t *testing.T) {
	fire := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	answer := func(do, verb string, stops bool, shards ...int) operator.Answer {
		return operator.Answer{Shards: shards, Fire: fire, Do: do, Verb: verb, Stops: stops, Summary: "why " + do}
	}
	findings := []operator.Finding{
		{Severity: operator.SeverityInfo, Job: "settle", What: "small", Do: "little"},
		{Severity: operator.SeverityError, Job: "settle", What: "large", Do: "much"},
		{Severity: operator.SeverityError, Job: "other", What: "of another", Do: "nothing here"},
	}
	for name, c := range map[string]struct {
		answers     []operator.Answer
		findings    []operator.Finding
		do, command string
	}{
		"nothing":                                {nil, nil, "", ""},
		"an answer goes first":                   {[]operator.Answer{answer("retry it", "Retry", true, 1)}, findings, "retry it", "rota retry settle --fire 2026-03-01T12:00:00Z"},
		"that of the most shards":                {[]operator.Answer{answer("a", "", true, 1), answer("b", "", true, 2, 3)}, nil, "b", ""},
		"one that stops goes first":              {[]operator.Answer{answer("a", "", false, 1, 2, 3), answer("b", "", true, 4)}, nil, "b", ""},
		"answers with one remedy are one":        {[]operator.Answer{answer("on", "Enable", true, 4), answer("b", "", true, 2, 3), answer("on", "Enable", true, 0, 1)}, nil, "on", "rota enable settle --shards 0-1,4"},
		"the gravest finding about the job":      {nil, findings, "much", ""},
		"an old fire is no trouble":              {[]operator.Answer{answer("look it up", "History", false, 1)}, findings, "much", ""},
		"a run that goes on may have a remedy":   {[]operator.Answer{answer("cancel it", "Cancel", false, 1)}, nil, "cancel it", "rota cancel settle --shard 1"},
		"an answer without a remedy has none":    {[]operator.Answer{answer("", "", true, 1)}, nil, "", ""},
		"a finding about another job is no help": {nil, findings[2:], "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := view.ExplanationOf(operator.Explanation{Job: "settle", Answers: c.answers}, "")
			a, ok := AdviceOf(&e, c.findings)
			assert.Equal(t, c.do != "", ok)
			assert.Equal(t, c.do, a.Do)
			command := ""
			if a.Answer != nil {
				command = a.Answer.Command
			}
			assert.Equal(t, c.command, command)
		})
	}
}
