package testserver

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// ZooKeeperOptions are the options of ZooKeeper. The zero value is a single server
// without TLS and credentials.
type ZooKeeperOptions struct {
	// Members is the number of servers. Zero means 1.
	Members int
	// DirectPeers connects members directly instead of through proxies, for measurements.
	// Such members cannot be isolated.
	DirectPeers bool
	// TLS selects the security of the client port.
	TLS TLS
	// Log receives a line about each slow step and each repeated start. Nil discards them.
	Log io.Writer
	// SuperPassword, if not empty, is the password of the user super of the scheme digest,
	// who bypasses every ACL.
	SuperPassword string
	// Tick is the unit of ZooKeeper's times: a session lasts at least 2 ticks. Zero means 50
	// ms for a single server and 100 ms for several.
	Tick time.Duration
	// SyncTicks is the number of ticks for which a member without a leader keeps serving its
	// clients. Zero means 20.
	SyncTicks int
	// Lines are appended to the configuration of each server.
	Lines []string
	// JVM are the options of each Java machine. Nil means a small heap and a quick start,
	// which make a server several times slower under load.
	JVM []string
}

// ZooKeeper starts ZooKeeper. It returns when all members serve.
func ZooKeeper(ctx context.Context, o ZooKeeperOptions) (*Cluster, error) {
	java, err := provision.Java(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	classPath, err := provision.ClassPath(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	if o.Tick == 0 {
		o.Tick = 50 * time.Millisecond
		if o.Members > 1 {
			o.Tick = 100 * time.Millisecond
		}
	}
	if o.SyncTicks == 0 {
		o.SyncTicks = 20
	}
	return start(ctx, &zookeeper{java: java, classPath: classPath, options: o}, common{o.Members, o.DirectPeers, o.TLS, o.Log})
}

type zookeeper struct {
	java      string
	classPath string
	options   ZooKeeperOptions
	proxies   map[way]map[role]*tcpproxy.Proxy // none if direct
}

func (z *zookeeper) name() string { return "zookeeper" }

func (z *zookeeper) ports() []role {
	ports := []role{clients}
	if z.options.TLS != NoTLS {
		ports = append(ports, admin)
	}
	if z.options.Members > 1 {
		ports = append(ports, peers, election)
	}
	return ports
}

// electedPatience is the time that followers wait for an elected leader to listen.
// Without it they would see a reset and return to the election.
const electedPatience = 500 * time.Millisecond

// connectPeers gives each member its own address for each of the others.
func (z *zookeeper) connectPeers(c *Cluster) error {
	z.proxies = map[way]map[role]*tcpproxy.Proxy{}
	if c.network == nil {
		return nil
	}
	for _, from := range c.members {
		for _, to := range from.others() {
			proxies := map[role]*tcpproxy.Proxy{}
			for _, r := range []role{peers, election} {
				p, err := c.network.newLinkProxy(from, to, r)
				if err != nil {
					return err
				}
				proxies[r] = p
			}
			proxies[peers].SetPatience(electedPatience)
			z.proxies[way{from, to}] = proxies
		}
	}
	for w, proxies := range z.proxies {
		back := z.proxies[way{w.to, w.from}][election]
		proxies[election].SetFilter(func() tcpproxy.Filter { return rewriteAnnouncedAddr(back.Addr()) })
	}
	return nil
}

func (z *zookeeper) prepare(m *Member) error {
	lines := []string{
		fmt.Sprintf("tickTime=%d", z.options.Tick.Milliseconds()),
		"maxSessionTimeout=60000",
		"dataDir=" + m.DataDir(),
		"maxClientCnxns=0", // no limit
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"extendedTypesEnabled=true",
		"forceSync=no",
		"clientPortAddress=127.0.0.1",
		fmt.Sprintf("clientPort=%d", z.plainPort(m).Number),
	}
	if certs := m.cluster.certs; certs != nil {
		lines = append(lines,
			"secureClientPortAddress=127.0.0.1",
			fmt.Sprintf("secureClientPort=%d", m.port[clients].Number),
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location="+certs.serverBoth,
			"ssl.trustStore.location="+certs.authority,
			"ssl.clientAuth="+map[TLS]string{ServerTLS: "none", MutualTLS: "need"}[z.options.TLS])
	}
	if len(m.cluster.members) > 1 {
		lines = append(lines,
			"initLimit=50",
			fmt.Sprintf("syncLimit=%d", z.options.SyncTicks),
			"cnxTimeout=500")
		for _, other := range m.cluster.members {
			lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d",
				serverID(other), z.portFor(m, other, peers), z.portFor(m, other, election)))
		}
	}
	lines = append(lines, z.options.Lines...)
	if err := os.MkdirAll(m.DataDir(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.DataDir(), "myid"), fmt.Append(nil, serverID(m)), 0o600); err != nil {
		return err
	}
	return os.WriteFile(z.configPath(m), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func serverID(m *Member) int { return m.index + 1 }

// portFor returns the port at which m reaches other, which may be m itself.
func (z *zookeeper) portFor(m, other *Member, r role) int {
	if p := z.proxies[way{m, other}][r]; p != nil {
		return p.Port()
	}
	return other.port[r].Number
}

// plainPort returns the port without TLS.
func (z *zookeeper) plainPort(m *Member) *freeport.Port {
	if p := m.port[admin]; p != nil {
		return p
	}
	return m.port[clients]
}

func (z *zookeeper) configPath(m *Member) string { return filepath.Join(m.dir, "zoo.cfg") }

func (z *zookeeper) command(m *Member) *exec.Cmd {
	jvm := z.options.JVM
	if jvm == nil {
		jvm = []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	}
	args := append(slices.Clone(jvm),
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		// It logs a page of warnings for each connection that ends.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=error",
		// Does not double the pause after each unheard vote of an election.
		"-Dzookeeper.fastleader.maxNotificationInterval=400",
	)
	if z.options.SuperPassword != "" {
		sum := sha1.Sum([]byte("super:" + z.options.SuperPassword)) // as the scheme requires
		digest := "super:" + base64.StdEncoding.EncodeToString(sum[:])
		args = append(args, "-Dzookeeper.DigestAuthenticationProvider.superDigest="+digest)
	}
	args = append(args, "-cp", z.classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", z.configPath(m))
	return exec.Command(z.java, args...)
}

// afterFirstStart and expectEmpty do nothing: a member is identified by its number and
// copies missing data from the leader.
func (z *zookeeper) afterFirstStart(context.Context, *Cluster) error { return nil }

func (z *zookeeper) expectEmpty(context.Context, *Member) error { return nil }
