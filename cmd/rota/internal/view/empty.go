package view

import (
	"fmt"
	"strings"

	"github.com/rota-dev/rota/coordinator"
)

// IsEmpty reports whether a group has no records, as after a mistake in its name.
func IsEmpty(st *coordinator.GroupStatus) bool {
	return len(st.Jobs)+len(st.Instances)+len(st.Unreadable) == 0
}

// DescribeEmpty returns what to check if a group has no records. Groups are those with live instances.
func DescribeEmpty(st *coordinator.GroupStatus, groups []string) string {
	if len(groups) == 0 {
		return fmt.Sprintf("Namespace %q has no live instances: check -n and the address of the registry.", st.Namespace)
	}
	return fmt.Sprintf("Group %q has no records. Groups of namespace %q with live instances: %s.", st.Group, st.Namespace, strings.Join(groups, ", "))
}
