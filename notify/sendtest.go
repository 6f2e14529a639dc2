package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// answerer is a receiver that returns the answer to a message.
type answerer interface {
	deliver(ctx context.Context, m Message) (answer string, err error)
}

// SendTest delivers a message with the Transition Test, once, and returns the answer to a Webhook or Mail. It needs no store.
func SendTest(ctx context.Context, to Receiver, namespace, group string) (answer string, err error) {
	m := sampleMessage(namespace, cmp.Or(group, "default"), time.Now())
	err = contain.CallApart("Deliver", func() (err error) {
		if a, ok := to.(answerer); ok {
			answer, err = a.deliver(ctx, m)
			return err
		}
		return to.Deliver(ctx, m)
	})
	return answer, err
}

// sampleMessage returns a message for a test.
func sampleMessage(namespace, group string, now time.Time) Message {
	c := composer{namespace: namespace, group: group}
	m := c.message(now)
	m.ID, m.Transition = hashOf(namespace, group, string(Test), now.UTC().Format(time.RFC3339Nano)), Test
	m.Text = c.where() + "this is a test of a receiver of messages; no job has changed"
	return m
}

// ErrHasSender is the error of Forget for a receiver that has a sender.
var ErrHasSender = errors.New("a process sends to the receiver")

// Forget deletes the record of a receiver that no process has in its configuration any more, so that operators are no longer
// warned that it has no sender. A sender that starts later begins anew. It does nothing if there is no record.
func Forget(ctx context.Context, reg registry.Registry, namespace, group, receiver string) error {
	keys, err := record.NewKeys(namespace, cmp.Or(group, "default"))
	if err == nil {
		err = record.CheckName(receiver)
	}
	if err == nil && reg == nil {
		err = errors.New("the registry is nil")
	}
	if err == nil {
		err = forget(ctx, reg, keys, receiver)
	}
	if err != nil {
		return fmt.Errorf("forget receiver %.100q: %w", receiver, err)
	}
	return nil
}

func forget(ctx context.Context, reg registry.Registry, keys record.Keys, receiver string) error {
	e, err := reg.Get(ctx, keys.Receiver(receiver), registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	places, err := reg.List(ctx, keys.Sender(receiver), registry.ReadOptions{Fresh: true})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(places.Entries, func(e registry.Entry) bool { return e.Key.Owned() }) {
		return ErrHasSender
	}
	_, err = registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}})
	return err
}
