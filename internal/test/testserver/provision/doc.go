// Package provision provides the servers and the browser for tests. It builds or downloads what is
// missing on the machine into a cache, without privileges and outside the repository:
//
//   - etcd is built from the module internal/tools/etcd, which pins its version; outside of a checkout it is that in $PATH;
//   - ZooKeeper is taken from the system's Java libraries or, if there are none, from
//     packages of the system's distribution, downloaded and extracted;
//   - Quartz, with whose cron expressions those of package executor are compared, is taken like ZooKeeper;
//   - Java is searched in $JAVA_HOME and $PATH, and otherwise taken from packages too;
//   - Chromium is searched in $PATH, and otherwise taken from packages too;
//   - axe-core, which checks the accessibility of pages, is a package of npm, whose hash is known.
//
// The cache is in the user's cache directory ($XDG_CACHE_HOME). Concurrent processes
// create an entry once, and a killed process leaves no partial entry. These environment
// variables override the defaults:
//
//	ROTA_ETCD                 an etcd binary; tested with 3.7
//	ROTA_ZOOKEEPER_CLASSPATH  the jars of ZooKeeper and its dependencies, separated by ':'; tested with 3.8
//	ROTA_JAVA                 a java binary; tested with 17
//	ROTA_QUARTZ_CLASSPATH     the jars of Quartz and slf4j, separated by ':'; tested with 2.3.2
//	ROTA_CHROMIUM             a chromium binary; tested with 148
//	ROTA_AXE                  the script of axe-core; tested with 4.14
//	ROTA_IGNORE_SYSTEM        if not empty, Java, ZooKeeper, Quartz, etcd and Chromium of the system are ignored
package provision

// Names of the environment variables.
const (
	EtcdVariable         = "ROTA_ETCD"
	ClassPathVariable    = "ROTA_ZOOKEEPER_CLASSPATH"
	JavaVariable         = "ROTA_JAVA"
	QuartzVariable       = "ROTA_QUARTZ_CLASSPATH"
	ChromiumVariable     = "ROTA_CHROMIUM"
	AxeVariable          = "ROTA_AXE"
	IgnoreSystemVariable = "ROTA_IGNORE_SYSTEM"
)
