package serve

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/executor"
)

func TestSecretLogs_AreThoseOfTheFiles(t *testing.T) {
	file := func(job string, secret bool) *jobsfile.File {
		return &jobsfile.File{Jobs: []jobsfile.Job{{Job: executor.Job{Name: job}, SecretLog: secret}}}
	}
	var l secretLogs
	assert.False(t, l.has("a"))
	l.of(file("a", false), file("a", true), file("b", false))
	assert.True(t, l.has("a"))
	assert.False(t, l.has("b"))
	l.of(file("a", false))
	assert.False(t, l.has("a"))
}
