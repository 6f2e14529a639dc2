package etcd

import (
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

// Options describe a cluster and how to use it. Only Endpoints are required. They do not
// show Password when they are printed or logged.
type Options struct {
	// Endpoints are the members' addresses for clients: host:port, or URLs. A handle is
	// connected to one of them at a time, and goes on to the next when that is of no use any
	// more. It begins with any of them, so that the handles of a fleet are spread over all.
	Endpoints []string

	// InOrder makes the handle begin with the first of Endpoints, say the nearest.
	InOrder bool

	// Namespace is what all keys begin with, followed by a slash: a path of segments as in
	// registry.Key, with a slash before each. "" means DefaultNamespace. Registries in
	// different namespaces do not see each other; none may be below another.
	Namespace string

	// TLS is for endpoints that want it, with the client's certificate if that is how it
	// is known there. It is needed if the server's certificate is not one that the system
	// trusts: endpoints that begin with https:// use TLS without it. Endpoints that begin
	// with http:// are refused beside it.
	TLS *tls.Config

	// Username and Password are those of a user of etcd, who needs the permission to read
	// and write all keys that begin with Namespace and a slash. Both or neither are given.
	Username, Password string

	// CallTimeout is how long a call may take whose context would let it take longer. 0 means
	// 5 s.
	CallTimeout time.Duration

	// AuditEvery is how often a directory that is watched is compared with the store, for
	// events that the server failed to send. Comparisons are spread over time, and no more
	// than two a second are made, however many directories there are. 0 means 1 minute,
	// less than 0 never.
	AuditEvery time.Duration

	// CompactEvery makes the handles that have it take turns, that far apart, in making
	// etcd forget its history, of the turn before last and older. etcd keeps all history
	// until someone compacts it, by this option, by its own flag --auto-compaction-mode, or
	// by another user of the cluster, such as Kubernetes: it is the whole cluster's history
	// that is compacted, of all namespaces. The registry needs none of it. 0 means never.
	CompactEvery time.Duration

	// AnyVersion accepts servers that Open refuses otherwise: those before 3.5.28, and 3.6
	// before 3.6.9. They end leases that are being renewed, lose deletions on the way to
	// watchers, or answer reads with what is out of date.
	AnyVersion bool

	// Logger gets what the handle notices and no call returns: sessions that are suspended
	// or lost, members that are left for others, watches that begin again (INFO), foreign
	// values, compactions that fail (WARN). nil = slog.Default(). While the store answers,
	// nothing is logged.
	Logger *slog.Logger

	// DialOptions are added to those for gRPC. Interceptors see each request once.
	DialOptions []grpc.DialOption
}

// complete returns o with defaults in place of zeros, or all that is wrong with it.
func (o Options) complete() (Options, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Endpoints) == 0 {
		fault("no endpoints are given")
	}
	for _, e := range o.Endpoints {
		if e == "" || strings.ContainsAny(e, " ,") {
			fault("endpoint %q is not an address", e)
		}
	}
	if o.meansTLS() {
		for _, e := range o.Endpoints {
			if scheme(e) == "http" {
				fault("endpoint %q is in clear text, where TLS is asked for: write https://", e)
			}
		}
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if err := checkNamespace(o.Namespace); err != nil {
		faults = append(faults, err)
	}
	if (o.Username == "") != (o.Password == "") {
		fault("a user name and a password go together")
	}
	if o.CallTimeout < 0 {
		fault("CallTimeout is %v", o.CallTimeout)
	}
	if o.CompactEvery < 0 {
		fault("CompactEvery is %v", o.CompactEvery)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.AuditEvery == 0 {
		o.AuditEvery = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
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

// meansTLS reports whether a connection in clear text would be a mistake: o has options for
// TLS, or has credentials and uses TLS with another member. etcd's client library would
// connect to an http:// endpoint without TLS all the same, and send it the password.
func (o Options) meansTLS() bool {
	return o.TLS != nil || o.Username != "" && slices.ContainsFunc(o.Endpoints, func(e string) bool { return scheme(e) == "https" })
}

// scheme returns the scheme of an endpoint that is a URL, in lower case, or "".
func scheme(endpoint string) string {
	scheme, _, ok := strings.Cut(endpoint, "://")
	if !ok {
		return ""
	}
	return strings.ToLower(scheme)
}

// String names what o connects to.
func (o Options) String() string {
	return fmt.Sprintf("etcd at %s, namespace %s", o.endpoints(), o.Namespace)
}

// GoString is String, so that no way of printing shows the password.
func (o Options) GoString() string { return o.String() }

// LogValue is String for package slog.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

func (o Options) endpoints() string { return strings.Join(o.Endpoints, ",") }
