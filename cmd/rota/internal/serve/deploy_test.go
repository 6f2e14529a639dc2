//go:build unix

package serve

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// repository is the root of the repository, the context of the image's build.
const repository = "../../../.."

func readDeployFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy", name))
	require.NoError(t, err)
	return string(text)
}

// longestShutdown returns how long a process with default flags takes to end after SIGTERM, at most: the drain, the
// constants of package executor for the steps after it, and the end of the connection.
func longestShutdown(t *testing.T) time.Duration {
	t.Helper()
	total, err := time.ParseDuration(RunCommand(nil, nil).Flags().Lookup("drain-timeout").DefValue)
	require.NoError(t, err)
	var source string
	for _, file := range []string{"shutdown.go", "observers.go"} {
		text, err := os.ReadFile(filepath.Join(repository, "executor", file))
		require.NoError(t, err)
		source += string(text)
	}
	for _, name := range []string{"cancelGrace", "leaveTimeout", "deliveryTimeout"} {
		m := regexp.MustCompile(`(?m)^\t` + name + ` += (?:(\d+) \* )?time\.Second$`).FindStringSubmatch(source)
		require.NotNil(t, m, name)
		n, err := strconv.Atoi("0" + m[1])
		require.NoError(t, err)
		total += time.Duration(max(n, 1)) * time.Second
	}
	assert.Equal(t, 29*time.Second, total, "the help of --drain-timeout has the 9 s")
	return total + time.Second
}

// The types below have all keys of the manifests, so that decoding finds a misspelt key.
type (
	labels   map[string]string
	metadata struct {
		Name   string
		Labels labels
	}
	selector struct {
		MatchLabels labels `yaml:"matchLabels"`
	}
	probe struct {
		HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                         `yaml:"periodSeconds"`
		TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
		FailureThreshold int                         `yaml:"failureThreshold"`
	}
	variable struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []variable
		Ports       []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		ReadinessProbe  probe `yaml:"readinessProbe"`
		LivenessProbe   probe `yaml:"livenessProbe"`
		Resources       struct{ Requests, Limits map[string]string }
		SecurityContext struct {
			AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	pod struct {
		GracePeriod     int  `yaml:"terminationGracePeriodSeconds"`
		MountToken      bool `yaml:"automountServiceAccountToken"`
		SecurityContext struct {
			RunAsNonRoot bool                  `yaml:"runAsNonRoot"`
			RunAsUser    int                   `yaml:"runAsUser"`
			RunAsGroup   int                   `yaml:"runAsGroup"`
			Seccomp      struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		Spread []struct {
			MaxSkew           int      `yaml:"maxSkew"`
			TopologyKey       string   `yaml:"topologyKey"`
			WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
			LabelSelector     selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container
		Volumes    []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
		}
	}
	workload struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Replicas            int
			ServiceName         string `yaml:"serviceName"`
			PodManagementPolicy string `yaml:"podManagementPolicy"`
			Selector            selector
			Strategy            struct {
				Type          string
				RollingUpdate struct {
					MaxUnavailable int `yaml:"maxUnavailable"`
					MaxSurge       int `yaml:"maxSurge"`
				} `yaml:"rollingUpdate"`
			}
			Template struct {
				Metadata metadata
				Spec     pod
			}
		}
	}
	configMap struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Data       map[string]string
	}
	disruptionBudget struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			MaxUnavailable int `yaml:"maxUnavailable"`
			Selector       selector
		}
	}
	service struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			ClusterIP string `yaml:"clusterIP"`
			Selector  labels
			Ports     []struct {
				Name string
				Port int
			}
		}
	}
)

// decodeManifests decodes the documents of a file, in their order, into all.
func decodeManifests(t *testing.T, file string, all ...any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(readDeployFile(t, file)))
	d.KnownFields(true)
	for _, into := range all {
		require.NoError(t, d.Decode(into), file)
	}
	require.ErrorIs(t, d.Decode(&struct{}{}), io.EOF, file)
}

// manifests are the files for Kubernetes.
type manifests struct {
	config            configMap
	budget            disruptionBudget
	deployment, state workload
	service           service
}

func readManifests(t *testing.T) (m manifests) {
	t.Helper()
	decodeManifests(t, "kubernetes/deployment.yaml", &m.config, &m.budget, &m.deployment)
	decodeManifests(t, "kubernetes/statefulset.yaml", &m.service, &m.state)
	for text, got := range map[string][2]string{
		"v1 ConfigMap":                  {m.config.APIVersion, m.config.Kind},
		"policy/v1 PodDisruptionBudget": {m.budget.APIVersion, m.budget.Kind},
		"apps/v1 Deployment":            {m.deployment.APIVersion, m.deployment.Kind},
		"v1 Service":                    {m.service.APIVersion, m.service.Kind},
		"apps/v1 StatefulSet":           {m.state.APIVersion, m.state.Kind},
	} {
		require.Equal(t, text, got[0]+" "+got[1])
	}
	return m
}

// flagOf returns the value of --name=VALUE.
func flagOf(args []string, name string) string {
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// The pages name the grace period of the manifests.
func TestDeploy_PagesHaveTheGracePeriod(t *testing.T) {
	want := readManifests(t).deployment.Spec.Template.Spec.GracePeriod
	stated := regexp.MustCompile(`(?:terminationGracePeriodSeconds: |--stop-timeout |race period (?:of|to) |race period\.\*\* )(\d+)`)
	for page, most := range map[string]int{"guide.md": 1, "guide/kubernetes.md": 2, "operating/deploying.md": 2} {
		text, err := os.ReadFile(filepath.Join(repository, "docs", page))
		require.NoError(t, err)
		found := stated.FindAllStringSubmatch(string(text), -1)
		assert.Len(t, found, most, page)
		for _, m := range found {
			assert.Equal(t, strconv.Itoa(want), m[1], "%s: %s", page, m[0])
		}
	}
}

func TestDeploy_ManifestsAgree(t *testing.T) {
	m := readManifests(t)
	for _, w := range []workload{m.deployment, m.state} {
		pod := w.Spec.Template.Spec
		labels := w.Spec.Template.Metadata.Labels
		assert.Equal(t, labels, w.Spec.Selector.MatchLabels, w.Kind)
		assert.Equal(t, labels, pod.Spread[0].LabelSelector.MatchLabels, w.Kind)
		assert.Equal(t, labels, m.budget.Spec.Selector.MatchLabels, "of the budget")
		assert.Greater(t, w.Spec.Replicas, m.budget.Spec.MaxUnavailable, "an eviction leaves instances")
		assert.Greater(t, time.Duration(pod.GracePeriod)*time.Second, longestShutdown(t), w.Kind)

		c := pod.Containers[0]
		assert.Empty(t, flagOf(c.Args, "drain-timeout"), "the grace period is for the default")
		assert.Equal(t, ":"+strconv.Itoa(c.Ports[0].ContainerPort), flagOf(c.Args, "listen"), w.Kind)
		for want, p := range map[string]probe{"/readyz": c.ReadinessProbe, "/livez": c.LivenessProbe} {
			assert.Equal(t, want, p.HTTPGet.Path, w.Kind)
			assert.Equal(t, c.Ports[0].Name, p.HTTPGet.Port, w.Kind)
		}
		assert.Greater(t, time.Duration(c.LivenessProbe.TimeoutSeconds)*time.Second, livenessTimeout, w.Kind)
		for _, v := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(strings.Join(c.Args, " "), -1) {
			assert.True(t, slices.ContainsFunc(c.Env, func(e variable) bool { return e.Name == v[1] }), "%s of %s", v[1], w.Kind)
		}
		assert.Equal(t, pod.Volumes[0].Name, c.VolumeMounts[0].Name, w.Kind)
		assert.Equal(t, m.config.Metadata.Name, pod.Volumes[0].ConfigMap.Name, w.Kind)
		assert.Equal(t, c.VolumeMounts[0].MountPath, path.Dir(c.Args[1]), w.Kind)
		assert.Contains(t, m.config.Data, path.Base(c.Args[1]), w.Kind)
	}

	c := m.state.Spec.Template.Spec.Containers[0]
	assert.Equal(t, m.service.Metadata.Name, m.state.Spec.ServiceName)
	assert.Equal(t, "None", m.service.Spec.ClusterIP)
	assert.Equal(t, m.service.Spec.Selector, m.state.Spec.Template.Metadata.Labels)
	assert.Equal(t, c.Ports[0].ContainerPort, m.service.Spec.Ports[0].Port)
	assert.Equal(t, "$(POD_NAME)", flagOf(c.Args, "instance"))
	assert.Empty(t, flagOf(m.deployment.Spec.Template.Spec.Containers[0].Args, "instance"), "names of pods change there")
	grace, err := time.ParseDuration(flagOf(c.Args, "restart-grace"))
	require.NoError(t, err)
	assert.Greater(t, grace, time.Duration(m.state.Spec.Template.Spec.GracePeriod)*time.Second, "a pod stops and starts in it")
}

func TestDeploy_JobsFileIsValid(t *testing.T) {
	for name, content := range readManifests(t).config.Data {
		out, err := execute(t, writeFile(t, content))
		require.NoError(t, err, name)
		assert.Contains(t, out, "is valid: 2 jobs, revision 1")
		assert.Contains(t, out, "03:00:00 CE", "in Europe/Berlin")
	}
}

// image has the instructions of the Dockerfile.
type image struct {
	run, binary, zones string // the command of the build, and where the image has its results
	zonesInGo          string // the path of the zones below GOROOT
	env, user          string
	entrypoint, cmd    []string
}

func readImage(t *testing.T) (i image) {
	t.Helper()
	text := readDeployFile(t, "Dockerfile")
	get := func(pattern string) []string {
		m := regexp.MustCompile("(?m)^"+pattern+"$").FindAllStringSubmatch(text, -1)
		require.Len(t, m, 1, pattern)
		return m[0][1:]
	}
	i.run = get(`RUN (.+)`)[0]
	i.binary = get(`COPY --from=build /out/rota (\S+)`)[0]
	zones := get(`COPY --from=build /usr/local/go/(\S+\.zip) (\S+)`)
	i.zonesInGo, i.zones = zones[0], zones[1]
	i.env, i.user = get(`ENV ZONEINFO=(\S+)`)[0], get(`USER (\d+):\d+`)[0]
	require.NoError(t, json.Unmarshal([]byte(get(`ENTRYPOINT (.+)`)[0]), &i.entrypoint))
	require.NoError(t, json.Unmarshal([]byte(get(`CMD (.+)`)[0]), &i.cmd))

	goMod, err := os.ReadFile(filepath.Join(repository, "cmd/rota/go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(goMod), "\ngo "+get(`FROM golang:(\S+) AS build`)[0]+".", "the compiler of the module")
	return i
}

// unit has the directives of the unit, by section and key.
func readUnit(t *testing.T) map[string]map[string]string {
	t.Helper()
	unit, section := map[string]map[string]string{}, ""
	for line := range strings.Lines(readDeployFile(t, "systemd/rota.service")) {
		line = strings.TrimSuffix(line, "\n")
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
			require.NotContains(t, unit, section)
			unit[section] = map[string]string{}
		default:
			require.True(t, ok, line)
			require.NotContains(t, unit[section], key)
			unit[section][key] = value
		}
	}
	return unit
}

// TestDeploy_Unit has every directive of the unit, so that a misspelt one, which systemd ignores, is found.
func TestDeploy_Unit(t *testing.T) {
	unit := readUnit(t)
	stop, err := time.ParseDuration(unit["Service"]["TimeoutStopSec"])
	require.NoError(t, err)
	assert.Greater(t, stop, longestShutdown(t))
	args := strings.Fields(unit["Service"]["ExecStart"])
	assert.NotContains(t, unit["Service"]["ExecStart"], "--drain-timeout", "TimeoutStopSec is for the default")
	grace, err := time.ParseDuration(args[slices.Index(args, "--restart-grace")+1])
	require.NoError(t, err)
	assert.Greater(t, grace, stop, "a restart takes up to this")
	assert.Equal(t, strconv.Itoa(exit.Usage), unit["Service"]["RestartPreventExitStatus"])
	delete(unit["Service"], "TimeoutStopSec")
	delete(unit["Service"], "ExecStart")
	assert.Equal(t, map[string]map[string]string{
		"Unit": {
			"Description": "rota, scheduled jobs", "After": "network-online.target time-sync.target", "Wants": "network-online.target",
			"StartLimitIntervalSec": "0",
		},
		"Service": {
			"Type": "exec", "User": "rota", "StateDirectory": "rota", "WorkingDirectory": "/var/lib/rota", "EnvironmentFile": "-/etc/rota/rota.env",
			"ExecReload": "/bin/kill -HUP $MAINPID", "Restart": "always", "RestartSec": "2s", "RestartPreventExitStatus": "2",
			"KillMode":        "mixed", // the programs of runs must not get the SIGTERM of rota
			"NoNewPrivileges": "yes", "ProtectSystem": "full", "PrivateTmp": "yes",
			"PrivateDevices": "yes", "ProtectHome": "yes", "RestrictSUIDSGID": "yes", "UMask": "0077", "LimitNOFILE": "65536",
		},
		"Install": {"WantedBy": "multi-user.target"},
	}, unit)
}

// TestDeploy_CommandLinesServeProbesAndDrain starts the command lines of the examples, with a file and a port of the test
// and the registry in memory.
func TestDeploy_CommandLinesServeProbesAndDrain(t *testing.T) {
	m, i := readManifests(t), readImage(t)
	start := strings.Fields(readUnit(t)["Service"]["ExecStart"])
	require.Equal(t, i.binary, start[0], "the same path in the image and on a host")
	require.Equal(t, []string{i.binary}, i.entrypoint)
	require.Equal(t, m.deployment.Spec.Template.Spec.Containers[0].Args[1], i.cmd[1], "the same file in the image and the manifests")
	c := m.deployment.Spec.Template.Spec.Containers[0]
	for name, args := range map[string][]string{
		"unit":        start[1:],
		"image":       append(slices.Clone(i.cmd), "--init"), // as process 1
		"Deployment":  append(slices.Clone(c.Args), "--init"),
		"StatefulSet": append(slices.Clone(m.state.Spec.Template.Spec.Containers[0].Args), "--init"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "run", args[0])
			line := strings.Join(append([]string{"run", writeFile(t, hello)}, args[2:]...), " ")
			line = regexp.MustCompile(`%H|\$\(\w+\)`).ReplaceAllString(line, "node-1")
			listen := regexp.MustCompile(`(--listen[ =])\S*:8080`)
			require.Regexp(t, listen, line)
			line = listen.ReplaceAllString(line, "${1}127.0.0.1:0")
			p := startCommand(t, append(strings.Fields(line), "--registry", "memory", "--allow-root", "--log-format", "json")...)
			p.awaitText(t, "joined the fleet")
			address := p.find(t, "serving a port")[0]["address"].(string)
			for _, path := range []string{c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path, "/metrics"} {
				require.Eventually(t, func() bool {
					resp, err := http.Get("http://" + address + path)
					if err != nil {
						return false
					}
					_ = resp.Body.Close()
					return resp.StatusCode == http.StatusOK
				}, patience, tick, path)
			}
			p.send(t, syscall.SIGTERM)
			assert.Equal(t, exit.OK, p.exitCode(t))
			assert.NotEmpty(t, p.find(t, "left the fleet"))
		})
	}
}

// TestDeploy_ImageHasAStaticBinaryThatFindsZones runs the commands of the Dockerfile on this host.
func TestDeploy_ImageHasAStaticBinaryThatFindsZones(t *testing.T) {
	i := readImage(t)
	assert.Equal(t, i.zones, i.env)
	m := readManifests(t)
	assert.Equal(t, i.user, strconv.Itoa(m.state.Spec.Template.Spec.SecurityContext.RunAsUser))
	assert.Equal(t, i.user, strconv.Itoa(m.deployment.Spec.Template.Spec.SecurityContext.RunAsUser))

	binary := filepath.Join(t.TempDir(), "rota")
	require.Contains(t, i.run, " -o /out/rota ")
	build := exec.Command("/bin/sh", "-c", strings.Replace(i.run, "/out/rota", binary, 1))
	build.Dir = repository
	build.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOWORK=") })
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := elf.Open(binary)
	require.NoError(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
	assert.False(t, slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), "the image has no dynamic linker")

	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	zones := filepath.Join(strings.TrimSpace(string(goroot)), i.zonesInGo)
	show := func(zones string) string {
		t.Helper()
		cmd := exec.Command(binary, "next", "--cron", "0 3 1 1 *", "--in", "Europe/Berlin", "--count", "1")
		cmd.Env = []string{"ZONEINFO=" + zones}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Contains(t, show(zones), "03:00:00 CET")
	// This host may have zones of its own, and the image has none. In a copy, Berlin has the times of Tokyo: the binary
	// reads the zones of the image first.
	assert.Contains(t, show(renameZone(t, zones, "Asia/Tokyo", "Europe/Berlin")), "03:00:00 JST")
}

// renameZone returns a copy of a file of zones that has one zone, under another name.
func renameZone(t *testing.T, zones, from, to string) string {
	t.Helper()
	r, err := zip.OpenReader(zones)
	require.NoError(t, err)
	defer r.Close()
	f, err := r.Open(from)
	require.NoError(t, err)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	entry, err := w.CreateHeader(&zip.FileHeader{Name: to, Method: zip.Store})
	require.NoError(t, err)
	_, err = entry.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "zones.zip")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}
