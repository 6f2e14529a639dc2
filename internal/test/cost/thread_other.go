//go:build !linux

package cost

import "time"

var began = time.Now()

func threadTime() time.Duration { return time.Since(began) }
