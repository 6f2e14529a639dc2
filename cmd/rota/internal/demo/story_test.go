package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStory_Times(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for name, c := range map[string]struct {
		ends  []int // of the sessions of the instance that is killed at 10
		claim int   // of the run that it had begun
		late  bool  // the claim is observed before the ends
		want  string
	}{
		"a session that ends after the crash":          {[]int{12}, 15, false, "kill to session ended: 2s; session ended to runs claimed again: 3s"},
		"a session that had ended before the crash":    {[]int{9}, 15, false, "kill to session ended: 0s; session ended to runs claimed again: 6s"},
		"the second session of an instance":            {[]int{3, 12}, 15, false, "kill to session ended: 2s; session ended to runs claimed again: 3s"},
		"a claim that is observed before the end":      {[]int{12}, 11, true, "kill to session ended: 2s; session ended to runs claimed again: 0s"},
		"a claim by an instance whose session goes on": {nil, 15, false, "kill to session ended: -; session ended to runs claimed again: -"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(1, 1)
			s := newStory(b)
			b.killed["a"] = at(10)
			s.recordClaim(at(0), "a", 0, 1)
			if c.late {
				s.recordClaim(at(c.claim), "b", 0, 2)
			}
			for _, end := range c.ends {
				s.recordSessionEnd(at(end), "a")
			}
			if !c.late {
				s.recordClaim(at(c.claim), "b", 0, 2)
			}
			assert.Equal(t, c.want, s.describeTimes())
		})
	}
}
