package handler

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter returns the delay that the header of a response asks for, up to maxRetryAfter, or 0.
// A date counts from the date of the response, which is by the same clock.
func retryAfter(h http.Header, now time.Time) time.Duration {
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
