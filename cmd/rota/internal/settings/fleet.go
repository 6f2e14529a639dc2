package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// DescribeAbsence names the missing records of a group without a fleet, and the remedy; "" if it has one. A fleet has at least
// the record of an instance or of a job, or what operators have stored for it.
func (s *Settings) DescribeAbsence(ctx context.Context) (string, error) {
	reg, err := s.Connect(ctx)
	if err != nil {
		return "", err
	}
	keys, err := record.NewKeys(s.Namespace, s.Group)
	if err != nil {
		return "", err
	}
	for _, dir := range []registry.Key{keys.Members(), keys.Jobs(), keys.Plans(), keys.Controls(), keys.Election()} {
		l, err := reg.List(ctx, dir, registry.ReadOptions{Fresh: true})
		if err != nil || len(l.Entries) > 0 {
			return "", err
		}
	}
	text := fmt.Sprintf("There is no fleet: %s has no records below %s/groups/%s", s.Registry, s.Namespace, s.Group)
	if _, err = reg.Get(ctx, keys.Meta(), registry.ReadOptions{Fresh: true}); errors.Is(err, registry.ErrNotFound) {
		return fmt.Sprintf("%s, nor the record %s. Check -n, -g and the address of the registry.", text, keys.Meta()), nil
	}
	groups, err := operator.Groups(ctx, reg, s.Namespace)
	if err != nil || len(groups) == 0 {
		return text + ". Check -g.", err
	}
	return fmt.Sprintf("%s. Groups of namespace %q with live instances: %s.", text, s.Namespace, strings.Join(groups, ", ")), nil
}

// CheckFleet fails if the group has no fleet, as DescribeAbsence says.
func (s *Settings) CheckFleet(ctx context.Context) error {
	note, err := s.DescribeAbsence(ctx)
	if err == nil && note != "" {
		err = exit.Usagef("%s", note)
	}
	return err
}
