package provision

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// noOverrides clears the environment variables that override defaults.
func noOverrides(t *testing.T) {
	for _, v := range []string{EtcdVariable, ClassPathVariable, JavaVariable, ChromiumVariable, AxeVariable, IgnoreSystemVariable, "JAVA_HOME"} {
		t.Setenv(v, "")
	}
}

func TestOverrides(t *testing.T) {
	noOverrides(t)
	file := filepath.Join(t.TempDir(), "file")
	t.Setenv(EtcdVariable, file)
	t.Setenv(JavaVariable, file)
	t.Setenv(ChromiumVariable, file)
	t.Setenv(AxeVariable, file)
	t.Setenv(ClassPathVariable, "a.jar:b.jar")

	_, err := Etcd(t.Context(), nil)
	require.ErrorContains(t, err, EtcdVariable)
	_, err = Java(t.Context(), nil)
	require.ErrorContains(t, err, JavaVariable)
	_, err = Chromium(t.Context(), nil)
	require.ErrorContains(t, err, ChromiumVariable)
	_, err = Axe(t.Context(), nil)
	require.ErrorContains(t, err, AxeVariable)

	write(t, file, "")
	got, err := Etcd(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, file, got)
	got, err = Java(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, file, got)
	browser, err := Chromium(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, file, browser.Path)
	got, err = Axe(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, file, got)
	got, err = ClassPath(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "a.jar:b.jar", got)
}

func TestFailures_NameWhatIsMissingAndWhatOverridesIt(t *testing.T) {
	noOverrides(t)
	emptyCache(t)
	t.Setenv(IgnoreSystemVariable, "1")
	t.Setenv("PATH", "")
	_, err := ClassPath(t.Context(), nil)
	require.ErrorContains(t, err, "apt-get")
	require.ErrorContains(t, err, ClassPathVariable)
	_, err = Java(t.Context(), nil)
	require.ErrorContains(t, err, "apt-get")
	require.ErrorContains(t, err, JavaVariable)
	_, err = Chromium(t.Context(), nil)
	require.ErrorContains(t, err, "apt-get")
	require.ErrorContains(t, err, ChromiumVariable)

	t.Chdir(t.TempDir())
	_, err = Etcd(t.Context(), nil)
	require.ErrorContains(t, err, etcdModule)
	require.ErrorContains(t, err, EtcdVariable)
}

func TestEtcd_IsWhatTheModulePins(t *testing.T) {
	noOverrides(t)
	binary, err := Etcd(t.Context(), nil)
	require.NoError(t, err)
	again, err := Etcd(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, binary, again)

	module, err := findEtcdModule()
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	require.NoError(t, err)
	out, err := exec.Command(binary, "--version").Output()
	require.NoError(t, err)
	_, version, _ := strings.Cut(string(out), "etcd Version: ")
	version, _, _ = strings.Cut(version, "\n")
	require.Contains(t, string(mod), etcdPackage+" v"+version)
}

func TestJava_PrefersTheOneOfJavaHome(t *testing.T) {
	noOverrides(t)
	home, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	write(t, filepath.Join(path, "java"), "")
	got, err := Java(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(path, "java"), got)

	t.Setenv("JAVA_HOME", home)
	got, err = Java(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(path, "java"), got)

	write(t, filepath.Join(home, "bin", "java"), "")
	got, err = Java(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(home, "bin", "java"), got)
}

// fakePackages installs a fake apt-get and dpkg-deb, which know one package with Java,
// first in the PATH.
func fakePackages(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	write(t, filepath.Join(bin, "apt-get"), `#!/bin/sh
for last; do :; done
case "$*" in
*" update") touch updated ;;
*" download "*) [ -f updated ] && echo content >"$last.deb" ;;
esac
`)
	write(t, filepath.Join(bin, "dpkg-deb"), `#!/bin/sh
[ "$1" = -x ] || exit 1
jre="$3/usr/lib/jvm/java-17"
mkdir -p "$jre/bin" "$jre/lib" "$3/etc/java"
cp "$2" "$3/etc/java/jvm.cfg"
ln -s /etc/java/jvm.cfg "$jre/lib/jvm.cfg"
ln -s ../lib/jvm.cfg "$jre/bin/near"
touch "$jre/bin/java"
`)
}

func TestJava_IsExtractedFromAPackage(t *testing.T) {
	noOverrides(t)
	t.Setenv(IgnoreSystemVariable, "1")
	root := emptyCache(t)
	fakePackages(t)

	java, err := Java(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(java, root), java)
	jre := filepath.Dir(filepath.Dir(java))
	for _, link := range []string{"lib/jvm.cfg", "bin/near"} { // with and without a link that led out of the tree
		content, err := os.ReadFile(filepath.Join(jre, link))
		require.NoError(t, err)
		require.Equal(t, "content\n", string(content))
	}
	left, err := filepath.Glob(filepath.Join(root, "java-*", "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "packages are kept: %v", left)

	t.Setenv("PATH", "") // no longer required
	again, err := Java(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, java, again)
}

func TestClassPath_NamesMissingJars(t *testing.T) {
	noOverrides(t)
	t.Setenv(IgnoreSystemVariable, "1")
	root := emptyCache(t)
	fakePackages(t)
	_, err := ClassPath(t.Context(), nil)
	require.ErrorContains(t, err, "zookeeper.jar")
	require.ErrorContains(t, err, ClassPathVariable)
	left, err := filepath.Glob(filepath.Join(root, "zookeeper-*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestClassPath_ContainsAvailableJars(t *testing.T) {
	dir := t.TempDir()
	for _, jar := range append([]string{"netty-codec", "unrelated"}, needed...) {
		write(t, filepath.Join(dir, jar+".jar"), "")
	}
	path, err := classPath(dir)
	require.NoError(t, err)
	require.Len(t, filepath.SplitList(path), len(needed)+1)
	require.Contains(t, path, "netty-codec.jar")
	require.NotContains(t, path, "unrelated")
}
