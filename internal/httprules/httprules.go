// Package httprules has the rules that all HTTP requests of rota follow: which redirects are followed, and how long a server
// may make them wait.
package httprules

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// maxRetryAfter bounds the delay that a server may ask for.
	maxRetryAfter = time.Hour
	// MaxRedirects is the bound of net/http.
	MaxRedirects = 10
)

// IsToken reports whether s can be a method or the name of a header field.
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// IsSameServer reports whether a redirect stays with the server, whose connection may become
// encrypted.
func IsSameServer(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return portOf(from) == portOf(to)
	}
	return to.Scheme == "https" && portOf(from) == "80" && portOf(to) == "443"
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// RetryAfter returns the delay that the header of a response asks for, up to an hour, or 0.
// A date counts from the date of the response, which is by the same clock.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds > int(maxRetryAfter/time.Second) {
			return maxRetryAfter // more digits than an int has
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
