package etcd_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// requireOpenError returns the error of Open, which must fail soon.
func requireOpenError(t *testing.T, o etcd.Options, soon time.Duration) error {
	t.Helper()
	start := time.Now()
	c, err := etcd.Open(t.Context(), o)
	took := time.Since(start)
	if err == nil {
		require.NoError(t, c.Close(t.Context()))
	}
	require.Error(t, err)
	require.Less(t, took, soon, "%v", err)
	return err
}

func TestOpen_ListsAllProblemsOfTheOptions(t *testing.T) {
	err := requireOpenError(t, etcd.Options{
		Endpoints: []string{"a:1,b:1"}, Namespace: "rota/", Username: "u", CallTimeout: -1, CompactEvery: -1,
	}, time.Second)
	for _, fault := range []string{`endpoint "a:1,b:1"`, `namespace "rota/"`, "Username and Password", "CallTimeout", "CompactEvery"} {
		require.ErrorContains(t, err, fault)
	}
	require.ErrorContains(t, requireOpenError(t, etcd.Options{}, time.Second), "no endpoints")
	for _, ns := range []string{"/", "a", "/a/", "/a//b", "/a b", "/~a", "/.."} {
		err := requireOpenError(t, etcd.Options{Endpoints: []string{"a:1"}, Namespace: ns}, time.Second)
		require.ErrorContains(t, err, "namespace", ns)
	}
}

func TestOpen_RefusesClearTextEndpointsIfTLSIsConfigured(t *testing.T) {
	credentials := etcd.Options{Username: "u", Password: "p"}
	for name, c := range map[string]struct {
		o         etcd.Options
		endpoints []string
		refused   string
	}{
		"with TLS options":                       {etcd.Options{TLS: &tls.Config{}}, []string{"https://a:1", "http://b:1"}, "http://b:1"},
		"with a scheme in upper case":            {etcd.Options{TLS: &tls.Config{}}, []string{"HTTP://b:1"}, "HTTP://b:1"},
		"with credentials and an https endpoint": {credentials, []string{"https://a:1", "http://b:1"}, "http://b:1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			o.Endpoints = c.endpoints
			err := requireOpenError(t, o, longWait)
			require.ErrorContains(t, err, fmt.Sprintf("endpoint %q is in clear text", c.refused))
			require.NotContains(t, err.Error(), "connection")
		})
	}
	t.Run("accepts clear text if no TLS is configured", func(t *testing.T) {
		o := credentials
		o.Endpoints = []string{"http://" + deadAddr(t, false)}
		require.ErrorContains(t, requireOpenError(t, o, longWait), "connection refused")
	})
}

// deadAddr returns an address that refuses connections or, if silent is set, accepts them and
// never answers.
func deadAddr(t *testing.T, silent bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if silent {
		t.Cleanup(func() { l.Close() })
	} else {
		require.NoError(t, l.Close())
	}
	return l.Addr().String()
}

func TestOpen_FailsAtOnceAtAWrongAddressAndNamesTheCause(t *testing.T) {
	for name, o := range map[string]etcd.Options{
		"without credentials": {},
		"with credentials":    {Username: "u", Password: "p"},
		"with TLS":            {TLS: &tls.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Endpoints = []string{deadAddr(t, false), deadAddr(t, false)}
			err := requireOpenError(t, o, time.Second)
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorContains(t, err, "connection refused")
			for _, endpoint := range o.Endpoints {
				require.ErrorContains(t, err, endpoint+": connection error", "the error names a cause per endpoint")
			}
		})
	}
	t.Run("with a host that does not exist", func(t *testing.T) {
		err := requireOpenError(t, etcd.Options{Endpoints: []string{"no-such-host.invalid:2379"}}, longWait)
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorContains(t, err, "no-such-host.invalid")
	})
}

func TestOpen_TimesOutAtASilentAddress(t *testing.T) {
	err := requireOpenError(t, etcd.Options{Endpoints: []string{deadAddr(t, true)}}, longWait)
	require.ErrorIs(t, err, registry.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = etcd.Open(ctx, etcd.Options{Endpoints: []string{deadAddr(t, true)}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 2*time.Second, "the deadline of the caller applies")
}

func TestOpen_NeedsOneMemberThatAnswers(t *testing.T) {
	p := newFixture(t)
	dead, silent := deadAddr(t, false), deadAddr(t, true)
	c := p.open(func(o *etcd.Options) {
		o.Endpoints = append([]string{dead, silent}, o.Endpoints...)
		o.InOrder = true
	})
	mustCommit(t, c, registry.Create("k", nil))
	require.Contains(t, p.log.String(), "cannot read the version of a member")
	require.Contains(t, p.log.String(), dead)
}

// fakeMember answers the requests that Open makes.
type fakeMember struct {
	pb.UnimplementedKVServer
	pb.UnimplementedMaintenanceServer
	version string
}

func (m fakeMember) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (m fakeMember) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (m fakeMember) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: m.version}, nil
}

func startFake(t *testing.T, version string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	pb.RegisterKVServer(s, fakeMember{version: version})
	pb.RegisterMaintenanceServer(s, fakeMember{version: version})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	return l.Addr().String()
}

func TestOpen_RefusesVersionsWithKnownBugs(t *testing.T) {
	good := startFake(t, "3.7.0")
	for version, ok := range map[string]bool{
		"3.4.34": false, "3.5.0": false, "3.5.27": false, "3.5.28": true, "3.5.100": true,
		"3.6.0": false, "3.6.8": false, "3.6.9": true, "3.7.0": true, "3.7.0-rc.1": true, "3.8.2": true, "4.0.0": true,
		"2.3.8": false, "": false, "new": false, "3.x.1": false,
	} {
		t.Run(version, func(t *testing.T) {
			fake := startFake(t, version)
			o := etcd.Options{Endpoints: []string{good, fake}, InOrder: true}
			if !ok {
				err := requireOpenError(t, o, longWait)
				require.ErrorContains(t, err, fake+": version")
				require.ErrorContains(t, err, version)
				require.False(t, registry.Retryable(err), "an operator is needed: %v", err)
				o.AnyVersion = true
			}
			c, err := etcd.Open(t.Context(), o)
			require.NoError(t, err)
			require.NoError(t, c.Close(t.Context()))
		})
	}
}

func TestOpen_Credentials(t *testing.T) {
	const root = "root's"
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{
		RootPassword: root, Flags: []string{"--bcrypt-cost", "4", "--auth-token-ttl", "1"},
	})
	raw, err := clientv3.New(clientv3.Config{
		Endpoints: cluster.Addrs(), Username: "root", Password: root, Logger: zap.NewNop(),
	})
	require.NoError(t, err)
	defer raw.Close()
	const user, password = "worker", "a very secret word"
	_, err = raw.UserAdd(t.Context(), user, password)
	require.NoError(t, err)
	log := &logBuffer{}
	o := etcd.Options{Endpoints: cluster.Addrs(), Username: user, Password: password, Logger: slogTo(log)}

	t.Run("without credentials", func(t *testing.T) {
		o := o
		o.Username, o.Password = "", ""
		require.ErrorIs(t, requireOpenError(t, o, longWait), registry.ErrUnauthenticated)
	})
	t.Run("with a wrong password", func(t *testing.T) {
		o := o
		o.Password += "!"
		err := requireOpenError(t, o, longWait)
		require.ErrorIs(t, err, registry.ErrUnauthenticated)
		require.NotContains(t, err.Error(), password)
	})
	t.Run("without rights", func(t *testing.T) {
		err := requireOpenError(t, o, longWait)
		require.ErrorIs(t, err, registry.ErrPermission)
		require.False(t, registry.Retryable(err))
		require.ErrorContains(t, err, `no right to read the keys that begin with "/rota/"`)
	})

	_, err = raw.RoleAdd(t.Context(), user)
	require.NoError(t, err)
	_, err = raw.UserGrantRole(t.Context(), user, user)
	require.NoError(t, err)
	const all = "/rota/"
	grant := func(t *testing.T, from string, kind clientv3.PermissionType) {
		t.Helper()
		_, err := raw.RoleGrantPermission(t.Context(), user, from, clientv3.GetPrefixRangeEnd(from), kind)
		require.NoError(t, err)
	}
	const read, write = clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermWrite)
	lacks := func(t *testing.T, right string) {
		t.Helper()
		err := requireOpenError(t, o, longWait)
		require.ErrorIs(t, err, registry.ErrPermission)
		require.False(t, registry.Retryable(err))
		require.ErrorContains(t, err, fmt.Sprintf("no right to %s the keys that begin with %q: permission denied: etcdserver: permission denied", right, all))
	}
	t.Run("with the right to write only", func(t *testing.T) {
		grant(t, all, write)
		lacks(t, "read")
	})
	t.Run("with the right to read only", func(t *testing.T) {
		grant(t, all, read)
		lacks(t, "write")
	})
	t.Run("with the right to write some of the keys", func(t *testing.T) {
		for _, part := range []string{"/rota/:sessions/", "/rota/jobs/"} {
			grant(t, part, clientv3.PermissionType(clientv3.PermReadWrite))
			lacks(t, "write")
		}
	})
	grant(t, all, clientv3.PermissionType(clientv3.PermReadWrite))

	t.Run("with the documented rights", func(t *testing.T) {
		o := o
		o.CompactEvery = 50 * time.Millisecond
		c, err := etcd.Open(t.Context(), o)
		require.NoError(t, err)
		defer c.Close(t.Context())
		s := openSession(t, c)
		w := openWatch(t, c, "d")
		nextBatch(t, w)
		mustCommit(t, c, registry.CreateOwned("d/~k", nil, s.ID()))
		require.Len(t, nextBatch(t, w).Puts, 1)
		require.NoError(t, s.Close(t.Context()))
		require.NotEmpty(t, nextBatch(t, w).Deletes)
	})
	t.Run("whose token has expired", func(t *testing.T) {
		for name, call := range map[string]func(c *etcd.Client) error{
			"Txn": func(c *etcd.Client) error {
				_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Absent("none")}})
				return err
			},
			"List": func(c *etcd.Client) error { _, err := c.List(t.Context(), "d", fresh); return err },
			"OpenSession": func(c *etcd.Client) error {
				_, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
				return err
			},
		} {
			c, err := etcd.Open(t.Context(), o)
			require.NoError(t, err)
			<-time.After(2500 * time.Millisecond) // longer than the token's second, as the server removes expired tokens once a second
			require.NoError(t, call(c), name)
			require.NoError(t, c.Close(t.Context()))
		}
	})
	t.Run("do not appear in logs", func(t *testing.T) {
		slogTo(log).Info("opened", "options", o, "also", fmt.Sprintf("%v %+v %#v %s", o, o, o, &o))
		require.Contains(t, log.String(), "etcd at ")
		require.NotContains(t, log.String(), password)
	})
}

func TestOpen_WarnsOfPasswordsInClearText(t *testing.T) {
	refuse := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed })
	warns := func(o etcd.Options) bool {
		log := &logBuffer{}
		o.Logger, o.DialOptions = slogTo(log), []grpc.DialOption{refuse}
		requireOpenError(t, o, longWait)
		return strings.Contains(log.String(), "the password of the store is sent without TLS")
	}
	require.True(t, warns(etcd.Options{Endpoints: []string{"127.0.0.1:1", "etcd-1:1"}, Username: "u", Password: "p"}))
	require.False(t, warns(etcd.Options{Endpoints: []string{"127.0.0.1:1"}, Username: "u", Password: "p"}))
	require.False(t, warns(etcd.Options{Endpoints: []string{"https://etcd-1:1"}, Username: "u", Password: "p"}))
	require.False(t, warns(etcd.Options{Endpoints: []string{"etcd-1:1"}}))
}

func TestOpen_TLS(t *testing.T) {
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{TLS: testserver.MutualTLS})
	t.Run("with a certificate that the server trusts", func(t *testing.T) {
		c, err := etcd.Open(t.Context(), etcd.Options{Endpoints: cluster.Addrs(), TLS: cluster.TLS()})
		require.NoError(t, err)
		defer c.Close(t.Context())
		mustCommit(t, c, registry.Create("k", nil))
	})
	t.Run("with the ServerName of the certificate", func(t *testing.T) {
		o := etcd.Options{Endpoints: []string{"https://" + cluster.Addrs()[0]}, TLS: cluster.TLS()}
		o.TLS.ServerName = "localhost"
		c, err := etcd.Open(t.Context(), o)
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()))
	})
	t.Run("a client without TLS gets a hint in its error", func(t *testing.T) {
		for _, o := range []etcd.Options{{}, {Username: "u", Password: "p"}} {
			o.Endpoints = cluster.Addrs()
			err := requireOpenError(t, o, longWait)
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorContains(t, err, cluster.Addrs()[0])
			require.ErrorContains(t, err, "the server may require TLS")
		}
	})
	t.Run("a client with TLS gets no hint", func(t *testing.T) {
		o := etcd.Options{Endpoints: cluster.Addrs(), TLS: cluster.TLS()}
		o.TLS.RootCAs = nil
		require.NotContains(t, requireOpenError(t, o, longWait).Error(), "the server may require TLS")
	})
	for name, change := range map[string]func(o *etcd.Options){
		"without a certificate":                                func(o *etcd.Options) { o.TLS.Certificates, o.TLS.GetClientCertificate = nil, nil },
		"with an authority that the client does not trust":     func(o *etcd.Options) { o.TLS.RootCAs = nil },
		"with another ServerName than that of the certificate": func(o *etcd.Options) { o.TLS.ServerName = "elsewhere.test" },
	} {
		t.Run(name, func(t *testing.T) {
			o := etcd.Options{Endpoints: cluster.Addrs(), TLS: cluster.TLS()}
			change(&o)
			err := requireOpenError(t, o, longWait)
			require.ErrorIs(t, err, registry.ErrUnavailable)
			t.Log(err)
		})
	}
}
