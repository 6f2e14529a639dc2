package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of labels. What a job asks for is told in plans, so that is less.
const (
	MaxLabels          = 64  // of a member
	MaxRunOn           = 16  // that a job asks for
	MaxLabelKeyBytes   = 100 // of a label's key
	MaxLabelValueBytes = 200 // of its value, which may be empty
)

// CheckLabels returns all that is wrong with labels of which there may be so many, in the
// order of the keys.
func CheckLabels(labels map[string]string, most int) []error {
	var errs []error
	if n := len(labels); n > most {
		errs = append(errs, fmt.Errorf("%d labels, at most %d", n, most))
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == "" {
			errs = append(errs, errors.New("an empty key"))
		} else if err := checkLine(key, MaxLabelKeyBytes); err != nil {
			errs = append(errs, fmt.Errorf("the key %.100q %w", key, err))
		}
		if err := checkLine(labels[key], MaxLabelValueBytes); err != nil {
			errs = append(errs, fmt.Errorf("the value of %.100q %w", key, err))
		}
	}
	return errs
}

// HasLabels reports whether labels have all pairs that are wanted.
func HasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// LabelsText returns labels for people to read, by key.
func LabelsText(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ", ")
}
