// Package provision gets the servers that tests run against. What is not on the machine
// it builds or downloads, without privileges and outside the repository, into a cache:
//
//   - etcd is built from the module internal/tools/etcd, which pins its version;
//   - ZooKeeper is taken from the system's Java libraries or, where there are none, from
//     packages of the system's distribution, downloaded and extracted;
//   - Java is looked for in $JAVA_HOME and $PATH, and then treated in the same way.
//
// The cache is in the user's cache directory ($XDG_CACHE_HOME). Processes that need the
// same thing at the same time make it once, and a process that dies leaves nothing half
// made behind. These variables of the environment override what would be done:
//
//	ROTA_ETCD                 an etcd binary; tested is 3.7
//	ROTA_ZOOKEEPER_CLASSPATH  jars of ZooKeeper and of what it needs, with ':' between; tested is 3.8
//	ROTA_JAVA                 a java binary; tested is 17
//	ROTA_IGNORE_SYSTEM        if not empty, Java and ZooKeeper of the system are not used
package provision

// The variables.
const (
	EtcdVariable         = "ROTA_ETCD"
	ClassPathVariable    = "ROTA_ZOOKEEPER_CLASSPATH"
	JavaVariable         = "ROTA_JAVA"
	IgnoreSystemVariable = "ROTA_IGNORE_SYSTEM"
)
