package postgres

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ParseURL returns the Options in a URL:
//
//	postgres://host:port,host:port/database?schema=rota&user=rota&listen=host:port&sslmode=verify-full
//
// All parts after the hosts may be missing. listen has ListenEndpoints; sslmode is disable, or verify-full for TLS, by default disable;
// poll=only is PollOnly; target_session_attrs may be primary or read-write, which is always so. The scheme may be postgresql.
//
// A URL holds no password, since others can read it, and no user before the host: the error for one with "@" has no part of it.
func ParseURL(text string) (Options, error) {
	if strings.Contains(text, "@") {
		return Options{}, errors.New("the address of the registry has a user or password before the host, which it must not have, as others can read it")
	}
	o, err := parseURL(text)
	if err != nil {
		return Options{}, fmt.Errorf("registry %q: %w", text, err)
	}
	return o, nil
}

func parseURL(text string) (o Options, err error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return o, errors.New("the scheme must be postgres://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, database, _ := strings.Cut(rest, "/")
	o.Endpoints = strings.Split(hosts, ",")
	if o.Database, err = url.PathUnescape(database); err != nil {
		return o, err
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return o, err
	}
	for key, all := range values {
		if len(all) > 1 {
			return o, fmt.Errorf("%s is named twice", key)
		}
		if err := o.set(key, all[0]); err != nil {
			return o, err
		}
	}
	_, err = o.complete()
	return o, err
}

// set sets the option that a parameter of a URL names.
func (o *Options) set(key, value string) error {
	accepted := func(values string) error { return fmt.Errorf("%s is %q, not %s", key, value, values) }
	switch key {
	case "schema":
		o.Schema = value
	case "user":
		o.Username = value
	case "listen":
		o.ListenEndpoints = strings.Split(value, ",")
	case "poll":
		if o.PollOnly = value == "only"; !o.PollOnly {
			return accepted("only")
		}
	case "sslmode":
		switch value {
		case "verify-full":
			o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		case "disable":
		default: // others do not verify the server
			return accepted("disable or verify-full")
		}
	case "target_session_attrs":
		if value != "primary" && value != "read-write" {
			return accepted("primary or read-write: only the primary is used")
		}
	case "password":
		return errors.New("a password must not be in the address, as others can read it")
	default:
		return fmt.Errorf("unknown parameter %q", key)
	}
	return nil
}
