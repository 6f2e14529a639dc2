package scheduletext

import (
	"strings"
	"time"
)

// Duration returns d in the form of time.Duration.String without the units that are
// zero at the end: "1h", not "1h0m0s".
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
