package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestRef_AttemptAfterARetry(t *testing.T) {
	first := record.Ref{Epoch: 1, Fire: 1, Attempt: 1}
	retry := first.RetryAt(9, time.Second)
	assert.Equal(t, record.Ref{Epoch: 1, Fire: 1, Attempt: 2, Retries: 1, NotBefore: 9, RetryDelay: record.Duration(time.Second)}, retry)
	assert.Equal(t, record.Ref{Epoch: 1, Fire: 1, Attempt: 3, Retries: 1}, retry.AfterCrash(), "it does not wait")
	assert.Equal(t, record.Ref{Epoch: 1, Fire: 1, Attempt: 3, Retries: 1, HandedBack: 1}, retry.Return(), "it does not wait")
	assert.Equal(t, 1, retry.CrashAttempts())
	assert.Equal(t, 2, retry.AfterCrash().CrashAttempts())
}

// All writers must encode the same runs alike.
func TestRuns_OrderOfRetries(t *testing.T) {
	for name, change := range map[string]func(*record.Ref){
		"by retries":      func(r *record.Ref) { r.Retries++ },
		"by their time":   func(r *record.Ref) { r.NotBefore++ },
		"by their delays": func(r *record.Ref) { r.RetryDelay++ },
	} {
		t.Run(name, func(t *testing.T) {
			a := record.Ref{Epoch: 1, Fire: 1, Attempt: 1}.RetryAt(9, time.Second)
			b := a
			change(&b)
			zero, one := shardset.Of(0), shardset.Of(1)
			assert.Equal(t, record.Runs{}.With(zero, a).With(one, b), record.Runs{}.With(one, b).With(zero, a))
		})
	}
}
