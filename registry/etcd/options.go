package etcd

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// Options configure Open. Only Endpoints are required. Printing or logging Options does not
// reveal the Password.
type Options struct {
	// Endpoints are the client addresses of the members: host:port, or URLs. A handle is
	// connected to one member at a time and switches to the next when the connection breaks,
	// the member has no leader, or the member is silent. It begins with a random one, which
	// spreads the handles of a fleet over the members.
	Endpoints []string

	// InOrder makes the handle begin with the first of Endpoints, for example the nearest.
	InOrder bool

	// Namespace is the prefix of all keys, followed by a slash: a path of segments as in
	// registry.Key, with a slash before each. "" means DefaultNamespace. Registries in
	// different namespaces do not see each other; no namespace may be below another.
	Namespace string

	// TLS configures connections to endpoints that use TLS, including the client certificate if
	// the server asks for one. It is needed if the system does not trust the server's
	// certificate; otherwise an endpoint that begins with https:// is enough. With TLS set, an
	// endpoint that begins with http:// is an error.
	TLS *tls.Config

	// Username and Password authenticate a user of etcd, who needs the permission to read and
	// write all keys that begin with Namespace and a slash; with ReadOnly, to read them. Set both
	// or neither.
	Username, Password string

	// CallTimeout bounds each call, in addition to the call's context. 0 means 5 s.
	CallTimeout time.Duration

	// AuditEvery is the interval at which each watched directory is compared with the store, to
	// detect events that the server failed to send. A handle makes at most two comparisons a
	// second, however many directories it watches. 0 means 1 minute; a negative value disables
	// the audit.
	AuditEvery time.Duration

	// CompactEvery makes this handle take part in the compaction of etcd's history: once per
	// interval, one of the participating handles removes all history that is more than one
	// interval old. etcd keeps all history until a client compacts it, through this option,
	// etcd's own flag --auto-compaction-mode, or another user of the cluster such as
	// Kubernetes. Compaction affects the whole cluster, all namespaces included. The registry
	// itself needs no history. 0 disables it. With
	// authentication, compaction needs a right of its own, see docs/stores.md.
	CompactEvery time.Duration

	// ReadOnly opens a handle that needs no right to write: Txn and OpenSession fail with
	// registry.ErrReadOnly. It cannot be combined with CompactEvery.
	ReadOnly bool

	// AnyVersion lets Open accept server versions with known bugs: those before 3.5.28, and 3.6
	// before 3.6.9. They end leases that are being renewed, lose deletions on the way to
	// watchers, or return outdated reads.
	AnyVersion bool

	// Logger receives events that no call returns. At INFO: sessions that are suspended or
	// lost, switches to another member, watches that restart. At WARN: foreign values, failed
	// compactions. While the store answers, nothing is logged. nil means slog.Default().
	Logger *slog.Logger

	// DialOptions are added to the gRPC dial options. Interceptors see each request once.
	DialOptions []grpc.DialOption
}

const (
	defaultCallTimeout = 5 * time.Second
	defaultAuditEvery  = time.Minute
)

// complete returns o with defaults for zero values, or an error that lists all problems.
func (o Options) complete() (Options, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Endpoints) == 0 {
		fault("no endpoints")
	}
	for _, e := range o.Endpoints {
		if e == "" || strings.ContainsAny(e, " ,") {
			fault("endpoint %q is not an address", e)
		}
	}
	if o.requiresTLS() {
		for _, e := range o.Endpoints {
			if scheme(e) == "http" {
				fault("endpoint %q is in clear text although TLS is configured: use https://", e)
			}
		}
	}
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if err := checkNamespace(o.Namespace); err != nil {
		faults = append(faults, err)
	}
	if (o.Username == "") != (o.Password == "") {
		fault("set both Username and Password, or neither")
	}
	if o.CallTimeout < 0 {
		fault("CallTimeout is negative: %v", o.CallTimeout)
	}
	if o.CompactEvery < 0 {
		fault("CompactEvery is negative: %v", o.CompactEvery)
	}
	if o.ReadOnly && o.CompactEvery > 0 {
		fault("CompactEvery is set although ReadOnly is")
	}
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	o.AuditEvery = cmp.Or(o.AuditEvery, defaultAuditEvery)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Endpoints = slices.Clone(o.Endpoints)
	if !o.InOrder {
		rand.Shuffle(len(o.Endpoints), func(i, j int) {
			o.Endpoints[i], o.Endpoints[j] = o.Endpoints[j], o.Endpoints[i]
		})
	}
	o.DialOptions = slices.Clone(o.DialOptions)
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
	}
	return o, errors.Join(faults...)
}

// requiresTLS reports whether an endpoint in clear text is a mistake: TLS is configured, or
// there are credentials and another endpoint uses TLS. etcd's client library would connect to
// an http:// endpoint without TLS nevertheless and send it the password.
func (o Options) requiresTLS() bool {
	return o.TLS != nil || o.Username != "" && slices.ContainsFunc(o.Endpoints, func(e string) bool { return scheme(e) == "https" })
}

// scheme returns the scheme of an endpoint in lower case, or "" if the endpoint is no URL.
func scheme(endpoint string) string {
	scheme, _, ok := strings.Cut(endpoint, "://")
	if !ok {
		return ""
	}
	return strings.ToLower(scheme)
}

// String returns the endpoints and the namespace.
func (o Options) String() string {
	return fmt.Sprintf("etcd at %s, namespace %s", o.endpoints(), o.Namespace)
}

// GoString is String, so that no format verb reveals the password.
func (o Options) GoString() string { return o.String() }

// LogValue is String for package slog.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

func (o Options) endpoints() string { return strings.Join(o.Endpoints, ",") }
