package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

func TestNotifier_ReportsFailureAndRecovery(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		f.start("a", f.job("settle"), f.job("other"))
		f.notify("a", Options{Receivers: map[string]Receiver{"ops": ops}, Console: "https://rota.example.org/c/"})
		f.fail(true, "settle")
		time.Sleep(10 * time.Minute)
		f.fail(false, "settle")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "settle failing, settle recovered", ops.transitions())
		m := ops.messages()
		assert.Regexp(t, `^test/default: settle is failing: shard 0, fire 2000-01-01T00:02:00Z: no such table$`, m[0].Text)
		assert.Equal(t, "no such table", m[0].Error)
		assert.Equal(t, "https://rota.example.org/c/jobs/settle", m[0].Link)
		assert.Equal(t, time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC), m[0].Fire, "the latest that failed")
		assert.WithinDuration(t, time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC), m[0].Since, time.Second)
		assert.Equal(t, "test/default: settle has recovered: it was failing", m[1].Text)
		assert.NotEqual(t, m[0].ID, m[1].ID)
		st := f.processes["a"].notifier.Stats()["ops"]
		assert.Equal(t, ReceiverStats{Sender: true, Delivered: 2}, st)
		assert.Empty(t, f.cursor("ops").Flight)
	})
}

func TestNotifier_ReportsALateJob(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		f.start("a", f.job("settle"))
		f.notify("watch", Options{Receivers: map[string]Receiver{"ops": ops}})
		time.Sleep(5*time.Minute + 30*time.Second)
		f.kill("a") // the only instance: nothing of the fleet is left but the notifier
		time.Sleep(10 * time.Minute)
		require.Equal(t, "settle late", ops.transitions())
		m := ops.messages()[0]
		assert.Contains(t, m.Text, "settle is late: its fire of 2000-01-01T00:06:00Z has been due for ")
		f.start("b", f.job("settle"))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "settle late, settle recovered", ops.transitions())
	})
}

func TestNotifier_PauseAndRetire(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		ex := f.start("a", f.job("settle"))
		f.notify("a", Options{Receivers: map[string]Receiver{"ops": ops}})
		f.fail(true, "settle")
		time.Sleep(5 * time.Minute)
		op, err := operator.New(f.processes["a"].reg, "test", "")
		require.NoError(t, err)
		require.NoError(t, op.Pause(t.Context(), "settle"))
		time.Sleep(time.Hour)
		assert.Equal(t, "settle failing", ops.transitions())
		require.NoError(t, op.Resume(t.Context(), "settle"))
		time.Sleep(time.Hour)
		assert.Equal(t, "settle failing", ops.transitions())
		require.NoError(t, ex.Withdraw(t.Context(), "settle"))
		err = op.Retire(t.Context(), "settle")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Equal(t, "settle failing, settle removed", ops.transitions())
		assert.Empty(t, f.cursor("ops").Jobs)
	})
}

// killedAt starts two processes, each with an executor and a notifier of one receiver, and has a job fail. The one that leads and sends
// is killed as soon as it delivers, before or after it has the message accepted.
func killedAt(t *testing.T, f *fleet, accepted bool) (a, b *sink) {
	a, b = &sink{}, &sink{}
	a.set(func(Message) error {
		a.set(func(Message) error { return errors.New("dead") })
		f.kill("a")
		if accepted {
			return nil
		}
		return errors.New("no route to host")
	})
	f.start("a", f.job("settle"))
	f.start("b", f.job("settle"))
	f.notify("a", Options{Receivers: map[string]Receiver{"ops": a}})
	f.notify("b", Options{Receivers: map[string]Receiver{"ops": b}})
	f.fail(true, "settle")
	time.Sleep(10 * time.Minute)
	return a, b
}

func TestNotifier_SenderAndLeaderDieBetweenTransitionAndDelivery(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		a, b := killedAt(t, f, false)
		assert.Empty(t, a.messages())
		assert.Equal(t, "settle failing", b.transitions())
		f.fail(false, "settle")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "settle failing, settle recovered", b.transitions())
	})
}

func TestNotifier_SenderAndLeaderDieBetweenDeliveryAndCommit(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		a, b := killedAt(t, f, true)
		assert.Equal(t, "settle failing", a.transitions())
		assert.Equal(t, "settle failing", b.transitions())
		assert.Equal(t, ids(a.messages()), ids(b.messages()), "the repetition has the same ID")
		assert.Equal(t, a.messages(), b.messages())
		time.Sleep(time.Hour)
		assert.Len(t, b.messages(), 1, "it is repeated once")
	})
}

// A message that was perhaps accepted is repeated even if its state is over when another sender begins: the receiver would
// wait for the recovery.
func TestNotifier_SenderDiesAndTheJobRecovers(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		a, b := &sink{}, &sink{}
		a.set(func(Message) error {
			f.kill("a")
			f.fail(false, "settle")
			return nil
		})
		f.start("x", f.job("settle"))
		f.notify("a", Options{Receivers: map[string]Receiver{"ops": a}})
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": b}})
		f.fail(true, "settle")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "settle failing, settle recovered", b.transitions())
		assert.Equal(t, ids(a.messages()), ids(b.messages())[:1])
	})
}

// The sender dies when the state is about to have lasted, so that no record has it.
func TestNotifier_SenderDiesBeforeTheTransition(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		a, b := &sink{}, &sink{}
		f.start("x", f.job("settle"))
		f.notify("a", Options{Receivers: map[string]Receiver{"ops": a}})
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": b}})
		f.fail(true, "settle")
		time.Sleep(110 * time.Second)
		f.kill("a")
		time.Sleep(10 * time.Minute)
		assert.Empty(t, a.messages())
		assert.Equal(t, "settle failing", b.transitions())
	})
}

func TestNotifier_ThousandJobsFailAtOnce(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		var jobs []executor.Job
		for _, name := range names(1000) {
			job := f.job(name)
			job.Schedule = schedule.Every(10 * time.Minute)
			jobs = append(jobs, job)
		}
		f.start("a", jobs...)
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops}})
		f.fail(true, names(1000)...)
		time.Sleep(15 * time.Minute)
		require.Len(t, ops.messages(), 1)
		m := ops.messages()[0]
		assert.Equal(t, Summary, m.Transition)
		assert.Equal(t, map[Transition]int{Failing: 1000}, m.Counts)
		assert.Equal(t, []int{maxListed, 1000 - maxListed, 0}, []int{len(m.Jobs), m.More, m.Rest})
		assert.Contains(t, m.Text, "test/default: 1000 jobs changed: 1000 failing\njob-0000 is failing: shard 0, fire ")
		assert.Len(t, f.cursor("ops").Jobs, 1000)
		f.fail(false, names(1000)...)
		time.Sleep(10 * time.Minute)
		require.Len(t, ops.messages(), 2)
		assert.Equal(t, map[Transition]int{Recovered: 1000}, ops.messages()[1].Counts)
	})
}

// Jobs whose database is away fail one after another, as their fires come.
func TestNotifier_ManyJobsFailWithinAMinute(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		var jobs []executor.Job
		for _, name := range names(300) {
			job := f.job(name)
			job.Schedule = job.Schedule.Spread(time.Minute)
			jobs = append(jobs, job)
		}
		f.start("a", jobs...)
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops}})
		time.Sleep(3*time.Minute + 30*time.Second)
		f.fail(true, names(300)...)
		time.Sleep(6 * time.Minute)
		reported := 0
		for _, m := range ops.messages() {
			reported += 1
			if m.Transition == Summary {
				reported += m.Counts[Failing] - 1
			}
		}
		assert.Equal(t, 300, reported)
		assert.LessOrEqual(t, len(ops.messages()), maxSingle+3)
	})
}

// A receiver that is down for an hour delays no other one. The messages that wait for it are bounded, and later it gets the changes.
func TestNotifier_AReceiverIsDownForAnHour(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops, down := &sink{}, &sink{}
		down.set(func(Message) error { return errors.New("connection refused") })
		f.start("a", f.job("settle"), f.job("export"), f.job("poll"))
		n := f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops, "down": down}})
		f.fail(true, "settle")
		time.Sleep(5 * time.Minute)
		since := f.cursor("down").DownSince.Time()
		assert.WithinDuration(t, time.Now().Add(-3*time.Minute), since, 10*time.Second)
		assert.Equal(t, "connection refused", f.cursor("down").Error)
		for range 6 {
			f.fail(true, "export")
			time.Sleep(5 * time.Minute)
			f.fail(false, "export")
			time.Sleep(5 * time.Minute)
		}
		f.fail(true, "poll")
		time.Sleep(5 * time.Minute)
		assert.Contains(t, ops.transitions(), "settle failing, export failing, export recovered, export ")
		assert.Contains(t, ops.transitions(), ", poll failing")
		assert.Empty(t, down.messages())
		st := n.Stats()["down"]
		assert.Equal(t, 1, st.InFlight)
		assert.Less(t, down.attempts(), 90, "the attempts back off")
		assert.LessOrEqual(t, f.log.count("a receiver does not accept messages"), 75, "at most one line a minute")
		assert.Equal(t, since, f.cursor("down").DownSince.Time())

		down.set(nil)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "settle failing, export recovered, poll failing", down.transitions(), "what has not changed since is not reported")
		assert.Equal(t, ids(ops.messages())[0], ids(down.messages())[0], "the ID does not depend on the receiver")
		assert.Greater(t, down.messages()[1].Changes, 5)
		assert.Equal(t, 1, f.log.count("a receiver accepts messages again"))
		assert.Zero(t, f.cursor("down").DownSince)
		assert.Empty(t, f.cursor("down").Error)
	})
}

// A receiver that refuses one message gets the others, and is asked about that one for a day.
func TestNotifier_ARefusedMessageDelaysNoOther(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		ops.set(func(m Message) error {
			if m.Job == "bad" {
				return executor.Permanent(errors.New("400 Bad Request"))
			}
			return nil
		})
		bad, good := f.job("bad"), f.job("good")
		bad.Schedule, good.Schedule = schedule.Every(5*time.Minute), schedule.Every(5*time.Minute)
		f.start("a", bad, good)
		n := f.notify("a", Options{Receivers: map[string]Receiver{"ops": ops}})
		f.fail(true, "bad")
		time.Sleep(8 * time.Minute)
		f.fail(true, "good")
		time.Sleep(time.Hour)
		assert.Equal(t, "good failing", ops.transitions())
		assert.Equal(t, 1, n.Stats()["ops"].InFlight)
		time.Sleep(25 * time.Hour)
		assert.Zero(t, n.Stats()["ops"].InFlight)
		assert.EqualValues(t, 1, n.Stats()["ops"].Dropped)
		assert.Equal(t, 1, f.log.count("message dropped: the receiver refuses it"))
		assert.Less(t, ops.attempts(), 40)
	})
}

func TestNotifier_RetryAfterIsHonoured(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		ops.set(func(Message) error { return executor.RetryAfter(10*time.Minute, errors.New("429")) })
		f.start("a", f.job("settle"))
		f.notify("a", Options{Receivers: map[string]Receiver{"ops": ops}})
		f.fail(true, "settle")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 1, ops.attempts())
		ops.set(nil)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "settle failing", ops.transitions())
	})
}

// Functions of users panic, end their goroutine, or do not return.
func TestNotifier_CodeOfUsersIsContained(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		hang := make(chan struct{})
		var calls atomic.Int64
		n := f.notify("b", Options{Timeout: 10 * time.Second, Receivers: map[string]Receiver{
			"ops":    ops,
			"panic":  Func(func(context.Context, Message) error { panic("at the receiver") }),
			"goexit": Func(func(context.Context, Message) error { runtime.Goexit(); return nil }),
			"hang":   Func(func(context.Context, Message) error { calls.Add(1); <-hang; return nil }),
		}})
		f.start("a", f.job("settle"))
		f.fail(true, "settle")
		time.Sleep(10 * time.Minute)
		st := n.Stats()
		assert.Equal(t, "settle failing", ops.transitions())
		assert.Equal(t, "Deliver panicked: at the receiver", st["panic"].Error)
		assert.Contains(t, st["goexit"].Error, "runtime.Goexit")
		assert.Contains(t, st["hang"].Error, "an earlier call of Deliver has not returned")
		assert.EqualValues(t, 1, calls.Load(), "a call that does not return is not repeated beside it")
		close(hang)
		time.Sleep(5 * time.Minute)
		assert.EqualValues(t, 2, calls.Load())
		assert.Zero(t, n.Stats()["hang"].InFlight)
	})
}

func TestNotifier_RoutesByJob(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops, team := &sink{}, &sink{}
		f.start("a", f.job("settle"), f.job("export"), f.job("quiet"))
		n := f.notify("a", Options{
			Receivers: map[string]Receiver{"ops": ops, "team": team}, Default: []string{"ops"},
			Jobs: map[string][]string{"export": {"ops", "team"}, "quiet": {}},
		})
		f.fail(true, "settle", "export", "quiet")
		time.Sleep(5 * time.Minute)
		assert.ElementsMatch(t, []string{"settle", "export"}, []string{ops.messages()[0].Job, ops.messages()[1].Job})
		assert.Equal(t, "export failing", team.transitions())

		// Another configuration repeats nothing, and has the job that is new to a receiver reported.
		require.NoError(t, n.Reconfigure(Options{Receivers: map[string]Receiver{"ops": ops, "team": team}, Logger: slog.New(f.log.handler())}))
		time.Sleep(5 * time.Minute)
		assert.Len(t, ops.messages(), 3)
		assert.Len(t, team.messages(), 3)
		assert.Error(t, n.Reconfigure(Options{Default: []string{"nobody"}}))
		require.NoError(t, n.Shutdown(t.Context()))
		assert.ErrorIs(t, n.Reconfigure(Options{}), ErrShutdown)
	})
}

// A shutdown lets a delivery finish, and passes the receiver on at once.
func TestNotifier_ShutdownPassesTheReceiverOn(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		a, b := &sink{}, &sink{}
		a.set(func(Message) error { time.Sleep(2 * time.Second); return nil })
		f.start("x", f.job("settle"))
		na := f.notify("a", Options{Receivers: map[string]Receiver{"ops": a}})
		nb := f.notify("b", Options{Receivers: map[string]Receiver{"ops": b}})
		f.fail(true, "settle")
		for a.attempts() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		require.NoError(t, na.Shutdown(t.Context()))
		synctest.Wait()
		assert.Equal(t, "settle failing", a.transitions())
		assert.True(t, nb.Stats()["ops"].Sender)
		time.Sleep(time.Hour)
		assert.Empty(t, b.messages(), "nothing is repeated")
	})
}

func TestNotifier_TheStoreIsAway(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		f.start("a", f.job("settle"))
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops}})
		time.Sleep(5 * time.Minute)
		resume := f.server.Pause()
		time.Sleep(10 * time.Minute)
		resume()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, ops.messages(), "old news is no reason for a message")
		f.fail(true, "settle")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "settle failing", ops.transitions())
	})
}

func TestNotifier_TheStoreIsWiped(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		f.start("a", f.job("settle"), f.job("export"))
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops}})
		f.fail(true, "settle")
		time.Sleep(5 * time.Minute)
		f.server.Wipe()
		time.Sleep(20 * time.Minute)
		assert.Equal(t, "settle failing, settle failing", ops.transitions(), "the record is lost, so a job that fails is reported anew")
		f.fail(false, "settle")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "settle failing, settle failing, settle recovered", ops.transitions())
	})
}

func TestNotifier_TheRecordIsDeletedOrDamaged(t *testing.T) {
	for _, edit := range []string{"deleted", "damaged"} {
		t.Run(edit, func(t *testing.T) {
			run(t, func(t *testing.T, f *fleet) {
				ops := &sink{}
				f.start("a", f.job("settle"))
				f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops}})
				editReceiver(t, f, "ops", edit == "deleted")
				f.fail(true, "settle")
				time.Sleep(5 * time.Minute)
				assert.Equal(t, "settle failing", ops.transitions())
				assert.Equal(t, "ops", f.cursor("ops").Name)
			})
		})
	}
}

// An idle notifier costs the store nothing but the renewals of its session, which are one each ten seconds: a third of the TTL.
func TestNotifier_CostOfRest(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		f.start("a")
		o := Options{Receivers: map[string]Receiver{"ops": &sink{}, "team": &sink{}}}
		f.notify("sender", o)
		f.notify("waiting", o)
		time.Sleep(time.Minute)
		f.server.ResetCounts()
		time.Sleep(10 * time.Minute)
		for name, watches := range map[string]int{"sender": 2 + 7, "waiting": 2} {
			c := f.server.Counts(name)
			assert.Equal(t, []int{0, 0, 0, 0}, []int{c.Commits, c.Checks, c.Conflicts, c.Reads}, name)
			assert.Equal(t, watches, c.Watches, "%s: the locks, and the group", name)
			assert.Equal(t, 1, c.Sessions)
		}
	})
}

// The cost of one transition: two commits, before and after the delivery.
func TestNotifier_CostOfATransition(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		ops := &sink{}
		f.start("a", f.job("settle"))
		f.notify("b", Options{Receivers: map[string]Receiver{"ops": ops}})
		time.Sleep(time.Minute)
		f.server.ResetCounts()
		f.fail(true, "settle")
		time.Sleep(10 * time.Minute)
		require.Len(t, ops.messages(), 1)
		assert.Equal(t, 2, f.server.Counts("b").Commits)
	})
}

func TestStart_RefusesWrongOptions(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		reg := f.process("a").reg
		_, err := Start(t.Context(), reg, "test", "", Options{
			Receivers: map[string]Receiver{"a/b": &sink{}, "nil": nil}, Default: []string{"x"}, Jobs: map[string][]string{"j": {"y"}},
			After: -1, Console: "rota.example.org",
		})
		require.Error(t, err)
		for _, part := range []string{"a/b", `"nil" is nil`, `Default: there is no receiver "x"`, `Jobs: "j": there is no receiver "y"`, "After: -1ns is below 0", "Console:"} {
			assert.ErrorContains(t, err, part)
		}
		_, err = Start(t.Context(), reg, "", "", Options{})
		assert.Error(t, err)
		_, err = Start(t.Context(), nil, "test", "", Options{})
		assert.Error(t, err)
	})
}

func TestForget(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		n := f.notify("a", Options{Receivers: map[string]Receiver{"ops": &sink{}}})
		reg := f.process("b").reg
		assert.ErrorIs(t, Forget(t.Context(), reg, "test", "", "ops"), ErrHasSender)
		require.NoError(t, n.Shutdown(t.Context()))
		require.NoError(t, Forget(t.Context(), reg, "test", "", "ops"))
		require.NoError(t, Forget(t.Context(), reg, "test", "", "ops"))
		assert.Error(t, Forget(t.Context(), reg, "test", "", "a/b"))
	})
}

func TestMessage_NamesOfJobsAreOneLine(t *testing.T) {
	c := composer{namespace: "n", group: "g"}
	var changes []Change
	for i := range 12 {
		changes = append(changes, Change{Job: fmt.Sprintf("a\r\nb\u2028%d", i), Transition: Failing, State: "failing\nx", Error: "e\r\ne", Changes: 1})
	}
	for _, m := range append(c.compose(changes[:1], 0, maxSingle, begin), c.compose(changes, 0, maxSingle, begin)...) {
		assert.NotContains(t, m.Text, "\r")
		assert.Equal(t, map[bool]int{true: 12, false: 0}[m.Transition == Summary], countOf(m.Text, '\n'))
	}
}

func countOf(text string, r rune) (n int) {
	for _, c := range text {
		if c == r {
			n++
		}
	}
	return n
}

// The findings that rota doctor shows of receivers.
func TestNotifier_ADiagnosisShowsReceivers(t *testing.T) {
	run(t, func(t *testing.T, f *fleet) {
		down := &sink{}
		down.set(func(Message) error { return errors.New("connection refused") })
		f.start("a", f.job("settle"))
		n := f.notify("b", Options{Receivers: map[string]Receiver{"ops": &sink{}, "down": down}})
		op, err := operator.New(f.process("c").reg, "test", "")
		require.NoError(t, err)
		findings := func() (all []string) {
			d, err := op.Diagnose(t.Context())
			require.NoError(t, err)
			for _, f := range d.Findings {
				if f.Kind == operator.FindingUndelivered {
					all = append(all, f.What)
				}
			}
			return all
		}
		f.fail(true, "settle")
		assert.Empty(t, findings())
		time.Sleep(10*time.Minute + 30*time.Second)
		require.Len(t, findings(), 1)
		assert.Regexp(t, `^receiver down: nothing delivered since 2000-01-01T00:02:0\dZ: connection refused$`, findings()[0])
		require.NoError(t, n.Shutdown(t.Context()))
		assert.Len(t, findings(), 3)
		assert.Contains(t, findings(), "receiver ops has no sender, so it gets no message about jobs")
		require.NoError(t, Forget(t.Context(), f.process("c").reg, "test", "", "down"))
		assert.Equal(t, []string{"receiver ops has no sender, so it gets no message about jobs"}, findings())
	})
}
