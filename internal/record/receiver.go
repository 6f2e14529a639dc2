package record

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/registry"
)

// Receiver is the record of a receiver of messages about jobs: the state of each job as the receiver knows it, and the
// messages on their way. Its sender writes it.
type Receiver struct {
	Name string        `json:"name"`
	Jobs []NotifiedJob `json:"jobs,omitempty"` // sorted by name; a job that is not listed is ok
	// Rest counts the jobs that were not ok and had no place in Jobs when a message last reported their number.
	Rest int `json:"rest,omitempty"`
	// Flight are messages that are being delivered, the oldest first, in the form of package notify.
	Flight []json.RawMessage `json:"flight,omitempty"`
	// DownSince is since when the receiver has accepted nothing, Error the reason. Both are zero if it accepts messages.
	DownSince Instant `json:"down_since,omitzero"`
	Error     string  `json:"error,omitempty"`
}

// NotifiedJob is the state of a job as of the last message about it.
type NotifiedJob struct {
	Job   string  `json:"job"`
	State string  `json:"state,omitempty"` // empty: ok
	Since Instant `json:"since,omitzero"`
	At    Instant `json:"at,omitzero"` // when its quiet time began
}

// The bounds of a Receiver. Beyond MaxNotified jobs, or MaxNotifiedBytes of their names, jobs are only counted.
const (
	MaxNotified      = 1000
	MaxNotifiedBytes = 64 << 10
	MaxFlight        = 64
	// maxMessageBytes bounds a message in a record.
	maxMessageBytes = 48 << 10
	// MaxReceiverErrorBytes bounds the text of an error.
	MaxReceiverErrorBytes = 200
)

// DecodeReceiver decodes and checks the record of a receiver.
func DecodeReceiver(b []byte) (*Receiver, error) {
	r, err := Decode[Receiver](b)
	if err != nil {
		return nil, err
	}
	return &r, r.Check()
}

// Check returns the first rule that a record breaks.
func (r *Receiver) Check() error {
	if err := CheckName(r.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if len(r.Jobs) > MaxNotified || len(r.Flight) > MaxFlight || r.Rest < 0 {
		return fmt.Errorf("%d jobs, %d messages and a rest of %d, at most %d and %d, and at least 0", len(r.Jobs), len(r.Flight), r.Rest, MaxNotified, MaxFlight)
	}
	for i := range r.Jobs {
		if err := jobname.Check(r.Jobs[i].Job); err != nil {
			return fmt.Errorf("jobs: %w", err)
		}
		if i > 0 && r.Jobs[i].Job <= r.Jobs[i-1].Job {
			return errors.New("jobs: not sorted by name")
		}
	}
	for _, m := range r.Flight {
		if len(m) > maxMessageBytes {
			return fmt.Errorf("flight: a message of %d bytes, at most %d", len(m), maxMessageBytes)
		}
	}
	if len(r.Error) > 4*MaxReceiverErrorBytes {
		return fmt.Errorf("error: %d bytes", len(r.Error))
	}
	return nil
}

// Receivers is the directory of the records of receivers.
func (k Keys) Receivers() registry.Key { return k.group.Join("receivers") }

// Receiver is the record of a receiver, see [Receiver].
func (k Keys) Receiver(name string) registry.Key { return k.group.Join("receivers", name) }

// Sender is the directory of the lock whose holder sends to a receiver.
func (k Keys) Sender(receiver string) registry.Key { return k.group.Join("senders", receiver) }
