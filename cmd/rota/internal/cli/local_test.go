package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/executor"
)

// Three instances have a jobs file each. Where its commands differ, screens name the instance.
func TestScreens_NameInstancesWithAnotherCommand(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		jobs := func(program string) (all []executor.Job) {
			file, err := jobsfile.Load("jobs.yaml", []byte(strings.ReplaceAll(`jobs:
  settle: {on: trigger, shards: 3, command: [PROGRAM, --all]}
  export: {on: trigger, http: {url: "http://a/export"}}
`, "PROGRAM", program)), jobsfile.Host{})
			require.NoError(t, err)
			for _, j := range file.Jobs {
				all = append(all, j.Job)
			}
			return all
		}
		f.start("web-1", nil, jobs("/bin/true")...)
		f.start("web-2", nil, jobs("/bin/true")...)
		other := f.start("web-3", nil, jobs("/bin/sh")...)
		time.Sleep(time.Minute)
		assert.Regexp(t, `(?m)^settle .+ ok, differs on web-3$`, f.run("jobs").out)
		assert.Regexp(t, `(?m)^export .+ ok$`, f.run("jobs").out)
		assert.Regexp(t, `web-3 on n-3: \d \(has another command or request than most\)\n`, f.run("job settle").out)
		assert.Equal(t, 1, strings.Count(f.run("job settle").out, "than most"))
		assert.NotContains(t, f.run("job export").out, "than most")
		doctor := f.run("doctor")
		assert.Equal(t, exit.OK, doctor.code, "no error is found")
		assert.Contains(t, doctor.out, "warning  differs  settle\n  what   the job differs on web-3 in what is not stored: its command or request\n")
		assert.Contains(t, f.run("jobs -o json").out, "\"local_differs\": [\n        \"web-3\"\n      ]")
		assert.Equal(t, exit.OK, f.run("check settle").code, "it may be meant")
		assert.Equal(t, exit.OK, f.run("wait settle --for ok").code)

		require.NoError(t, other.Register(jobs("/bin/true")...))
		time.Sleep(time.Minute)
		assert.NotContains(t, f.run("jobs").out, "differs")
		assert.NotContains(t, f.run("doctor").out, "differs")
	})
}
