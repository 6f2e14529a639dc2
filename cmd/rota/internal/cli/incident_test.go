//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/internal/view"
)

// TestIncident_OnServers plays an incident in a fleet of rota run processes, with four faults at a time and
// then a wrong clock. Each is found by jobs, explained by explain, mended by a verb and checked by wait and
// check. The screens are the same on both servers.
func TestIncident_OnServers(t *testing.T) {
	for i, store := range []struct {
		scheme string
		start  func(testing.TB) *testserver.Cluster
	}{{"etcd", servertest.Etcd}, {"zookeeper", servertest.ZooKeeper}} {
		t.Run(store.scheme, func(t *testing.T) {
			s := &scene{t: t, url: store.scheme + "://" + strings.Join(store.start(t).Addrs(), ",") + "/incident", dir: t.TempDir(), fleet: map[string]*process{}}
			s.begin()
			s.mendFourFaults()
			s.mendWrongClock()
			if *update && i == 0 {
				require.NoError(t, os.WriteFile(incidentFile, s.text.Bytes(), 0o644))
			}
			want, err := os.ReadFile(incidentFile)
			require.NoError(t, err)
			assert.Equal(t, string(want), s.text.String(), "read the difference; if it is meant: go test ./internal/cli -update")
		})
	}
}

// scene is a fleet of processes and the transcript of the commands that operate it.
type scene struct {
	t     *testing.T
	url   string
	dir   string // has the jobs file
	fleet map[string]*process
	text  bytes.Buffer
}

type process struct {
	*child.Process
	log *output
}

// incidentTime bounds each wait. The machine may be busy.
const incidentTime = time.Minute

// ledgerFire is the time of the only fire of ledger.
func (s *scene) writeFile(ledgerFire time.Time, revision int) {
	text := fmt.Sprintf(`
jobs:
  tenants: {every: 2s, shards: 6, command: ["true"]}
  settle: {schedule: "0 3 1 1 *", shards: 3, command: ["true"]}
  rebuild: {schedule: "30 4 1 1 *", shards: 2, command: ["true"]}
  invoices: {schedule: "0 0 1 1 *", shards: 4, run_on: {gpu: "yes"}, command: ["true"]}
  ledger:
    at: %s
    revision: %d
    shards: 4
    shell: '[ $ROTA_SHARD != 2 ] || [ -e bank ] || { echo "bank.internal: connection refused" >&2; exit 1; }'
`, ledgerFire.UTC().Format(time.RFC3339), revision)
	require.NoError(s.t, os.WriteFile(s.file(), []byte(text), 0o600))
}

// editFile replaces a part of the file, and has the fleet read it again.
func (s *scene) editFile(part, by string) {
	text, err := os.ReadFile(s.file())
	require.NoError(s.t, err)
	require.Contains(s.t, string(text), part)
	require.NoError(s.t, os.WriteFile(s.file(), []byte(strings.Replace(string(text), part, by, 1)), 0o600))
	s.reload()
}

func (s *scene) reload() {
	for _, p := range s.fleet {
		require.NoError(s.t, syscall.Kill(p.Pid(), syscall.SIGHUP))
	}
}

func (s *scene) file() string { return filepath.Join(s.dir, "jobs.yaml") }

// start starts an instance.
func (s *scene) start(name string, env []string, args ...string) {
	s.t.Helper()
	program, err := os.Executable()
	require.NoError(s.t, err)
	// A busy machine must not expire sessions.
	cmd := exec.Command(program, append([]string{
		"run", s.file(), "--registry", s.url, "--namespace", "billing", "--allow-root", "--instance", name,
		"--host", strings.Replace(name, "web", "n", 1), "--ttl", "6s",
	}, args...)...)
	cmd.Dir = s.dir
	// The race detector's delay at the exit would hold the test up.
	cmd.Env = append(append(os.Environ(), beCommand+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	p := &process{log: &output{}}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	p.Process, err = child.Start(cmd)
	require.NoError(s.t, err)
	s.fleet[name] = p
	s.t.Cleanup(func() {
		p.Kill()
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", name, p.log)
		}
	})
}

// stop lets an instance leave the fleet.
func (s *scene) stop(name string) {
	s.t.Helper()
	require.True(s.t, s.fleet[name].Stop(incidentTime), "%s does not end", name)
	delete(s.fleet, name)
}

// command runs a command line.
func (s *scene) command(line string) result {
	s.t.Helper()
	var args []string
	for _, w := range word.FindAllString(line, -1) {
		args = append(args, strings.Trim(w, "'"))
	}
	conf := settings.New(nil)
	conf.Getenv = func(name string) string {
		return map[string]string{"ROTA_REGISTRY": s.url, "ROTA_NAMESPACE": "billing", "ROTA_BY": "lee", "ROTA_CONFIG": s.dir + "/none"}[name]
	}
	var out, errs bytes.Buffer
	code := run(s.t.Context(), conf, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// show runs a command line and adds the line and its output to the transcript.
func (s *scene) show(line string, code int) {
	s.t.Helper()
	r := s.command(line)
	assert.Equal(s.t, code, r.code, "%s: %s", line, r.err)
	_, errs, target := strings.Cut(r.err, "\n") // the target of a screen goes to stderr
	if !target || !strings.HasPrefix(r.err, "# ") {
		errs = r.err
	}
	text := "$ rota " + line + "\n" + r.out + errs
	if r.code != exit.OK {
		text += fmt.Sprintf("exit code %d\n", r.code)
	}
	s.text.WriteString(maskScreen(text) + "\n")
}

// tell begins a part of the transcript.
func (s *scene) tell(part string) { s.text.WriteString("== " + part + " ==\n") }

// read returns the JSON form of a screen.
func read[T any](s *scene, line string) (v T) {
	s.t.Helper()
	r := s.command(line + " -o json")
	require.Contains(s.t, []int{exit.OK, exit.Usage}, r.code, r.err) // Usage: no instance has joined yet
	require.NoError(s.t, json.Unmarshal([]byte(r.out), &v))
	return v
}

// await waits until a screen shows what holds describes.
func await[T any](s *scene, line, what string, holds func(T) bool) (v T) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		v = read[T](s, line)
		return holds(v)
	}, incidentTime, 100*time.Millisecond, "%s does not show that %s", line, what)
	return v
}

// awaitRest waits until all instances own shards and none is about to move.
func (s *scene) awaitRest(instances int) {
	s.t.Helper()
	await(s, "instances", fmt.Sprintf("%d instances own shards", instances), func(v view.Instances) bool {
		n := 0
		for _, i := range v.Instances {
			if i.Alive && i.Shards > 0 {
				n++
			}
		}
		return n == instances
	})
	await(s, "jobs", "no shard moves", func(v view.Jobs) bool {
		return !slices.ContainsFunc(v.Jobs, func(j view.Job) bool { return j.Frozen > 0 })
	})
}

func find(v view.Instances, name string) view.Instance {
	for _, i := range v.Instances {
		if i.Instance == name {
			return i
		}
	}
	return view.Instance{}
}

// firstShard returns the lowest shard of tenants that an instance owns.
func (s *scene) firstShard(owner string) int {
	s.t.Helper()
	v := read[view.Shards](s, "shards tenants --owner "+owner)
	require.NotEmpty(s.t, v.Shards, "%s owns shards of tenants", owner)
	return v.Shards[0].Shard
}

// begin starts the fleet and brings the four faults about.
func (s *scene) begin() {
	const lead = 15 * time.Second // a definition takes effect 5 s after it is planned
	at := time.Now().Add(lead)
	s.writeFile(at, 1)
	s.start("web-1", nil, "--label", "zone=a")
	s.awaitRest(1)
	s.start("web-2", nil, "--label", "zone=a", "--restart-grace", "10m")
	s.awaitRest(2)
	s.start("web-3", nil, "--label", "zone=b")
	s.awaitRest(3)
	require.Equal(s.t, exit.OK, s.command("pause rebuild --by kim --reason 'new tables'").code)
	for revision := 2; ; revision++ { // on a busy machine the fire may pass before the job is planned
		require.Less(s.t, revision, 6, "ledger never fires")
		late := at.Add(5 * time.Second)
		for time.Now().Before(late) && len(read[view.Jobs](s, "jobs ledger").Jobs[0].Failing) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if len(read[view.Jobs](s, "jobs ledger").Jobs[0].Failing) > 0 {
			break
		}
		at = time.Now().Add(lead)
		s.writeFile(at, revision)
		s.reload()
	}
	await(s, "jobs ledger", "all runs have ended", func(v view.Jobs) bool { return v.Jobs[0].Counts.Succeeded == 3 })
	await(s, "jobs rebuild", "it is paused", func(v view.Jobs) bool { return v.Jobs[0].State == view.Paused })
	s.fleet["web-2"].Kill() // by SIGKILL
	delete(s.fleet, "web-2")
	await(s, "instances", "web-2 has expired", func(v view.Instances) bool { return !find(v, "web-2").Alive })
}

func (s *scene) mendFourFaults() {
	s.tell("four faults")
	s.show("jobs", 0)
	s.show("check", view.CheckWarning)

	s.tell("an instance was killed")
	s.show(fmt.Sprintf("explain tenants %d", s.firstShard("web-2")), exit.NotMet)
	s.show("drain web-2 --reason 'n-2 is broken'", 0)
	s.show("wait tenants --for ok", 0)

	s.tell("no instance may own the shards")
	s.show("explain invoices", exit.NotMet)
	s.editFile(`, run_on: {gpu: "yes"}`, ", revision: 1")
	s.show("wait invoices --for ok", 0)

	s.tell("a shard failed")
	s.show("explain ledger 2", exit.NotMet)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "bank"), nil, 0o600))
	fire := read[view.Jobs](s, "jobs ledger").Jobs[0].LastFire
	s.show("retry ledger --fire "+fire.UTC().Format(time.RFC3339), 0)
	s.show("wait ledger --for ok", 0)

	s.tell("a job is paused")
	s.show("explain rebuild", exit.NotMet)
	s.show("resume rebuild", 0)
	s.show("trigger rebuild --wait", 0)
	s.show("wait rebuild --for ok", 0)

	await(s, "jobs invoices", "each instance has read the file again", func(v view.Jobs) bool { return len(v.Jobs[0].Differs) == 0 })
	s.tell("all is well")
	s.show("jobs", 0)
	s.show("check", view.CheckOK)
}

// mendWrongClock has a clock an hour ahead. While the fleet has two instances, it cannot know which of two
// clocks is wrong.
func (s *scene) mendWrongClock() {
	s.stop("web-3")
	s.start("web-4", []string{clockAhead + "=1h0m30s"}, "--label", "zone=b")
	s.awaitRest(2)
	await(s, "jobs tenants", "fires were claimed ahead of time", func(v view.Jobs) bool { return v.Jobs[0].LastFire.After(v.At.Add(time.Hour)) })
	shard := s.firstShard("web-4")
	s.start("web-3", nil, "--label", "zone=b")
	await(s, "instances", "a clock is wrong", func(v view.Instances) bool { return find(v, "web-4").Skew != 0 && find(v, "web-4").Shards == 0 })
	await(s, "jobs tenants", "its shards wait", func(v view.Jobs) bool { return v.Jobs[0].Problem != "" && v.Jobs[0].Running == 0 })
	s.awaitRest(2)

	s.tell("a clock is wrong")
	s.show("jobs", 0)
	s.show("check", view.CheckWarning)
	s.show("instances", 0)
	s.show(fmt.Sprintf("explain tenants %d", shard), exit.NotMet)
	s.stop("web-4")
	s.start("web-4", nil, "--label", "zone=b")
	s.awaitRest(3)
	s.show("reset tenants --yes", 0)
	s.show("wait tenants --for ok", 0)
	s.show("check", view.CheckOK)

	s.start("web-2", nil, "--label", "zone=a", "--restart-grace", "10m")
	await(s, "instances", "web-2 is back", func(v view.Instances) bool { return find(v, "web-2").Alive })
	s.tell("the killed instance is back")
	s.show("undrain web-2 --reason 'n-2 is repaired'", 0)
	s.awaitRest(4)
	s.show("wait tenants --for moved", 0)
	s.show("instances", 0)
	s.show("acts", 0)
}

// What differs between two runs, and its replacement.
var incidentMasks = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2027-01-01T03:00:00Z"},
	{regexp.MustCompile(`\bterm \d+`), "term 88017"},
	{regexp.MustCompile(`\bIt is \S+ late`), "It is 9s late"},
	{regexp.MustCompile(`\bmax_late=\d+s`), "max_late=0s"},
	{regexp.MustCompile(`\brevision \d+`), "revision 1"},
}

// nextOfScreen is a fire that comes due about when the screen is made.
var nextOfScreen = regexp.MustCompile(`^now|^due \S+`)

// columnMasks replace cells of tables.
var columnMasks = map[string]func(row, cell string) string{
	"NEXT": func(row, cell string) string { return maskSpan(row, nextOfScreen.ReplaceAllString(cell, "in 9m")) },
	"LAST": maskSpan,
	"UP":   maskSpan,
	"WHEN": maskSpan,
	"SHARDS": func(_, cell string) string {
		shards, _, _ := strings.Cut(cell, ", ") // without the runs
		return shards
	},
	"RUNNING": func(string, string) string { return "0" },
	"CLOCK":   func(_, cell string) string { return wrongClock.ReplaceAllString(cell, "+1h") },
	"OK/FAIL/SKIP": func(row, cell string) string {
		if row == "tenants" { // it depends on the time
			return "99/0/9"
		}
		return cell
	},
	"STATE":  maskCut,
	"LABELS": maskCut,
}

var (
	span       = regexp.MustCompile(`\d+(ms|s|m|h|d)(\d+(s|m))?`)
	wrongClock = regexp.MustCompile(`\+1h1m`)
)

// maskSpan replaces a span of time, but not its direction.
func maskSpan(_, cell string) string { return span.ReplaceAllString(cell, "9m") }

// maskCut shortens a cell that is cut: how much is left depends on the other columns.
func maskCut(_, cell string) string {
	if short, cut := strings.CutSuffix(cell, ".."); cut {
		return strings.TrimRight(short[:min(len(short), 21)], " ") + ".."
	}
	return cell
}

// maskScreen replaces what differs between two runs, and lays lines out anew, whose lengths it changes.
func maskScreen(text string) string {
	text = joinLines(text)
	for _, m := range incidentMasks {
		text = m.find.ReplaceAllString(text, m.with)
	}
	return layOut(text)
}

// labelOfLine is the part of a line before the column in which its text continues on further lines.
var labelOfLine = regexp.MustCompile(`^ *(?:(?:ok|STOP|unknown) +[a-z]+(?: [a-z]+)? {2,}|[a-zA-Z0-9-]+ {2,})`)

// joinLines joins lines that a screen has wrapped.
func joinLines(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if n := len(out); n > 0 && indent > 4 && len(labelOfLine.FindString(out[n-1])) == indent {
			out[n-1] += " " + line[indent:]
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n") + "\n"
}

var gap = regexp.MustCompile(` {2,}`)

// layOut wraps long lines and aligns the columns of tables.
func layOut(text string) string {
	var out []string
	var table [][]string
	endTable := func() {
		var widths []int
		for _, row := range table {
			for i, cell := range row {
				if i == len(widths) {
					widths = append(widths, 0)
				}
				widths[i] = max(widths[i], len(cell))
			}
		}
		for _, row := range table {
			line := ""
			for i, cell := range row {
				line += cell + strings.Repeat(" ", widths[i]-len(cell)+2)
			}
			out = append(out, strings.TrimRight(line, " "))
		}
		table = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "JOB  ") || strings.HasPrefix(line, "NAME  ") || strings.HasPrefix(line, "WHEN  ") || len(table) > 0 && gap.MatchString(line):
			cells := gap.Split(line, -1)
			if len(table) > 0 {
				for i, column := range table[0] {
					if mask := columnMasks[column]; mask != nil && i < len(cells) {
						cells[i] = mask(cells[0], cells[i])
					}
				}
			}
			table = append(table, cells)
			continue
		}
		endTable()
		indent := len(labelOfLine.FindString(line))
		for indent > 0 && len(line) > 100 {
			at := strings.LastIndexByte(line[:101], ' ')
			if at <= indent {
				break
			}
			out = append(out, line[:at])
			line = strings.Repeat(" ", indent) + line[at+1:]
		}
		out = append(out, line)
	}
	endTable()
	return strings.Join(out, "\n") + "\n"
}
