package provision

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// systemJars is the directory of Java libraries in distributions.
const systemJars = "/usr/share/java"

// zookeeperPackages contain the required jars.
var zookeeperPackages = []string{
	"libzookeeper-java", "libslf4j-java", "libdropwizard-metrics-java", "libsnappy-java", "libnetty-java",
}

// needed are the jars without which a server does not run; wanted are for logging and
// TLS. The manifest of zookeeper.jar names only some of them.
var (
	needed = []string{"zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java"}
	wanted = []string{
		"slf4j-simple", "netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver",
		"netty-transport", "netty-transport-native-epoll", "netty-transport-native-unix-common",
	}
)

// ClassPath returns the class path of a ZooKeeper server. log, which may be nil, receives
// a line about each slow step.
func ClassPath(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv(ClassPathVariable); path != "" {
		return path, nil
	}
	path, err := findClassPath(ctx, log)
	if err != nil {
		return "", fmt.Errorf("provide ZooKeeper: %w; %s can name its jars instead", err, ClassPathVariable)
	}
	return path, nil
}

func findClassPath(ctx context.Context, log io.Writer) (string, error) {
	if !ignoreSystem() && isFile(filepath.Join(systemJars, "zookeeper.jar")) {
		return classPath(systemJars)
	}
	root, err := cachedPackages(ctx, log, "zookeeper", zookeeperPackages, func(root string) error {
		_, err := classPath(filepath.Join(root, systemJars))
		return err
	})
	if err != nil {
		return "", err
	}
	return classPath(filepath.Join(root, systemJars))
}

func classPath(dir string) (string, error) {
	var jars []string
	for _, name := range needed {
		jar := filepath.Join(dir, name+".jar")
		if !isFile(jar) {
			return "", fmt.Errorf("no file at %s", jar)
		}
		jars = append(jars, jar)
	}
	for _, name := range wanted {
		if jar := filepath.Join(dir, name+".jar"); isFile(jar) {
			jars = append(jars, jar)
		}
	}
	return strings.Join(jars, string(filepath.ListSeparator)), nil
}

func ignoreSystem() bool { return os.Getenv(IgnoreSystemVariable) != "" }
