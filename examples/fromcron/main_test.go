package main

import (
	"bytes"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rota-dev/rota/rotatest"
)

const processes = 3

func TestACronInEachProcessRunsEachFireThreeTimes(t *testing.T) {
	count := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		for range processes {
			c := cron.New(cron.WithLocation(time.UTC))
			if err := registerInOneProcess(c); err != nil {
				t.Fatal(err)
			}
			c.Start()
			defer c.Stop()
		}
		time.Sleep(4*time.Hour + time.Second)
	})
	if reports, sweeps := count("report"), count("sweep"); reports != processes || sweeps != 240*processes {
		t.Errorf("%d reports and %d sweeps in four hours", reports, sweeps)
	}
}

func TestAFleetRunsEachFireOnce(t *testing.T) {
	count := captureLog(t)
	rotatest.Run(t, func(f *rotatest.Fleet) {
		for _, instance := range []string{"a", "b", "c"} {
			if err := registerInFleet(f.Start(instance)); err != nil {
				t.Fatal(err)
			}
		}
		f.Sleep(4*time.Hour + time.Second)
	})
	if reports, sweeps := count("report"), count("sweep"); reports != 1 || sweeps != 240 {
		t.Errorf("%d reports and %d sweeps in four hours", reports, sweeps)
	}
}

// captureLog returns a function that counts the lines of the log that end with a word.
func captureLog(t *testing.T) func(word string) int {
	var mu sync.Mutex
	var text bytes.Buffer
	log.SetOutput(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(p)
	}))
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	return func(word string) int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(text.String(), " "+word+"\n")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
