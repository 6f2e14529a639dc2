package executor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/texthash"
)

// Retry determines whether and when a failed run is made again. The zero value makes no retry.
//
// A retry is on record in the registry: it survives crashes, restarts and moves, and the owner that
// the shard has then makes it, as the next attempt of the same fire or trigger. Newer fires of the
// shard wait until the last retry has ended; then Job.OnMisfire decides about them. Retries do not
// count towards Job.MaxAttempts, which bounds attempts that crash.
//
// A run is retried if its handler returned an error or panicked, also after ErrTimeout. It is not
// retried after an error made by Permanent. RetryAfter sets the delay of one retry.
type Retry struct {
	// Max is the number of retries of a run. Zero means none; a negative number means no bound.
	Max int
	// Initial is the delay before the first retry, counted from the end of the failed attempt.
	// Zero means a second.
	Initial time.Duration
	// MaxInterval bounds the delays before Jitter, up to 24 hours. Zero means a minute, or
	// Initial if that is longer.
	MaxInterval time.Duration
	// Factor is the quotient of two successive delays, at least 1. Zero means 2.
	Factor float64
	// Jitter spreads each delay by up to this fraction of it in both directions, up to 1, by a
	// hash of the run. Zero means 0.2; a negative number means none.
	Jitter float64
}

const (
	defaultRetryInitial     = time.Second
	defaultRetryMaxInterval = time.Minute
	defaultRetryFactor      = 2
	defaultRetryJitter      = 0.2
)

// retryField is the stored form of a Retry, with defaults filled in. Its zero value is not stored.
type retryField struct {
	Factor      float64       `json:"factor"` // sorted by name, as all records are
	Initial     durationField `json:"initial"`
	Jitter      float64       `json:"jitter,omitempty"`
	Max         int           `json:"max"`
	MaxInterval durationField `json:"max_interval"`
}

func retryFieldOf(r Retry) retryField {
	if r == (Retry{}) {
		return retryField{}
	}
	f := retryField{
		Max:         max(r.Max, -1),
		Initial:     durationField(cmp.Or(r.Initial, defaultRetryInitial)),
		MaxInterval: durationField(r.MaxInterval),
		Factor:      cmp.Or(r.Factor, defaultRetryFactor),
		Jitter:      max(cmp.Or(r.Jitter, defaultRetryJitter), 0),
	}
	if f.MaxInterval == 0 {
		f.MaxInterval = max(durationField(defaultRetryMaxInterval), f.Initial)
	}
	return f
}

func (f retryField) check() error {
	switch {
	case f == retryField{}:
		return nil
	case f.Max == 0:
		return errors.New("has Max 0, so its other fields have no effect")
	case f.Initial < 0:
		return fmt.Errorf("has a negative Initial of %v", time.Duration(f.Initial))
	case f.MaxInterval < f.Initial:
		return fmt.Errorf("has a MaxInterval of %v, below Initial %v", time.Duration(f.MaxInterval), time.Duration(f.Initial))
	case time.Duration(f.MaxInterval) > due.MaxRetryDelay:
		return fmt.Errorf("has a MaxInterval of %v, above %v", time.Duration(f.MaxInterval), due.MaxRetryDelay)
	case !(f.Factor >= 1 && f.Factor <= math.MaxFloat32): // also false for NaN
		return fmt.Errorf("has a Factor of %v, not at least 1", f.Factor)
	case !(f.Jitter >= 0 && f.Jitter <= 1):
		return fmt.Errorf("has a Jitter of %v, above 1", f.Jitter)
	}
	return nil
}

// delay returns the delay before the retry of a run that has been retried so many times before. It
// depends on nothing else but the key, which names the run without the random token of its trigger. The delays of one number of retries have 16 steps.
func (f retryField) delay(key string, retries int) time.Duration {
	d := min(float64(f.Initial)*math.Pow(f.Factor, float64(retries)), float64(f.MaxInterval))
	step := float64(texthash.Sum(fmt.Sprint(key, " ", retries))>>60)/15*2 - 1
	return min(time.Duration(d*(1+step*f.Jitter)), due.MaxRetryDelay)
}
