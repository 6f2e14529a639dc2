package settings

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Shards is a flag that selects shards, such as 3,7-9. It is nil if the flag is not given.
type Shards []int

// ParseShards returns the shards of a list of numbers and ranges, in any order.
func ParseShards(text string) (Shards, error) {
	set, err := shardset.ParseList(text, record.MaxShards)
	if err != nil {
		return nil, err
	}
	return slices.Collect(set.All()), nil
}

// Set implements pflag.Value.
func (s *Shards) Set(text string) (err error) {
	*s = nil
	if text != "" { // which CheckLine refuses
		*s, err = ParseShards(text)
	}
	return err
}

// String implements pflag.Value.
func (s *Shards) String() string { return shardset.Of(*s...).String() }

// Type implements pflag.Value.
func (s *Shards) Type() string { return "shards" }

// RenameFlag accepts another name of a flag.
func RenameFlag(other, name string) func(*pflag.FlagSet, string) pflag.NormalizedName {
	return func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == other {
			given = name
		}
		return pflag.NormalizedName(given)
	}
}

// Names is a flag of names, separated by commas, that may be repeated. An empty name is that of a variable which is not set.
type Names []string

// Set implements pflag.Value.
func (n *Names) Set(text string) error {
	names, err := csv.NewReader(strings.NewReader(text)).Read()
	if text == "" {
		names, err = []string{""}, nil
	}
	if err == nil && slices.Contains(names, "") {
		err = errors.New("it has an empty name")
	}
	*n = append(*n, names...)
	return err
}

// String implements pflag.Value.
func (n *Names) String() string { return strings.Join(*n, ",") }

// Type implements pflag.Value. The help and the completion know the name.
func (n *Names) Type() string { return "stringSlice" }

// Number is a flag of a whole number within bounds.
type Number struct {
	n           *int
	least, most int
}

// NewNumber returns a Number that is stored in n, from least to most; most is math.MaxInt if there is no greatest.
func NewNumber(n *int, value, least, most int) *Number {
	*n = value
	return &Number{n: n, least: least, most: most}
}

// Set implements pflag.Value.
func (n *Number) Set(text string) error {
	value, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return exit.Usagef("it is not a whole number")
	case value < n.least:
		return exit.Usagef("it is below %d", n.least)
	case value > n.most:
		return exit.Usagef("it is above %d", n.most)
	}
	*n.n = value
	return nil
}

// String implements pflag.Value. The help shows it for the default, and calls it on a zero Number.
func (n *Number) String() string {
	if n.n == nil {
		return "0"
	}
	return strconv.Itoa(*n.n)
}

// Type implements pflag.Value.
func (n *Number) Type() string { return "int" }

// mayBeEmpty is the annotation of a flag of text that may be empty.
const mayBeEmpty = "rota-may-be-empty"

// AllowEmpty makes flags accept an empty text. All others refuse it: it is that of a variable which is not set, and a command
// would do without the flag more than its user meant.
func AllowEmpty(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, mayBeEmpty, nil) // fails for a flag that the set does not have
	}
}

// checkEmpty returns an error for a flag of text that is set and empty.
func checkEmpty(f *pflag.Flag) error {
	if _, allowed := f.Annotations[mayBeEmpty]; allowed {
		return nil
	}
	empty := f.Value.String() == "" && slices.Contains([]string{"string", "shards"}, f.Value.Type())
	if list, ok := f.Value.(pflag.SliceValue); ok {
		empty = slices.Contains(list.GetSlice(), "")
	}
	if !empty {
		return nil
	}
	return fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
}

// checkDuration returns an error for a negative duration.
func checkDuration(f *pflag.Flag) error {
	if d, err := time.ParseDuration(f.Value.String()); f.Value.Type() == "duration" && err == nil && d < 0 {
		return fmt.Errorf("--%s is %v, below 0", f.Name, d)
	}
	return nil
}
