package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/jobname"
)

// Bounds of labels. A job may require fewer labels than a member may have, since definitions
// are part of plans.
const (
	MaxLabels          = 64 // of a member
	MaxRunOn           = 16 // required by a job
	maxLabelKeyBytes   = 100
	maxLabelValueBytes = 200 // a value may be empty
)

// CheckLabels returns all errors of labels, sorted by key. The parameter most bounds their number.
func CheckLabels(labels map[string]string, most int) []error {
	var errs []error
	if n := len(labels); n > most {
		errs = append(errs, fmt.Errorf("%d labels, at most %d", n, most))
		if n > maxEntries {
			return errs
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == "" {
			errs = append(errs, errors.New("an empty key"))
		} else if err := jobname.CheckLine(key, maxLabelKeyBytes); err != nil {
			errs = append(errs, fmt.Errorf("the key %.100q %w", key, err))
		}
		if err := jobname.CheckLine(labels[key], maxLabelValueBytes); err != nil {
			errs = append(errs, fmt.Errorf("the value of %.100q %w", key, err))
		}
	}
	return errs
}

// HasLabels reports whether labels include all wanted pairs.
func HasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// LabelsText returns labels as readable text, sorted by key.
func LabelsText(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ", ")
}
