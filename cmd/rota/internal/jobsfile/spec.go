package jobsfile

import (
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/executor"
)

// fileSpec is a file as it is written.
type fileSpec struct {
	Version   int
	Revision  int
	Namespace string
	Group     string
	Registry  Registry
	History   History
	Notify    notifySpec
	Defaults  jobSpec
	Pools     map[string]int
	Kinds     []jobSpec // in the order of the file
	Jobs      []jobSpec // in the order of the file
}

// jobSpec is a job as it is written, with the defaults; or a kind, which has fewer keys and MaxJobs.
type jobSpec struct {
	name        string
	Description string

	Schedule, Quartz        string
	Every, FixedDelay       time.Duration
	At                      []time.Time
	Always                  bool
	On                      string
	After                   after
	Timezone                string
	From, Until             time.Time
	Spread                  time.Duration
	Shards                  shards
	Param                   string
	Command                 []string
	Shell, Interpreter, Dir string
	Env                     map[string]value
	KillAfter               *time.Duration
	OKExit, PermanentExit   []int
	Output                  int // Cmd.LogLimit
	SecretLog               bool
	HTTP                    httpSpec
	Kind                    string
	KindRevision            int
	DeleteAfter             time.Duration
	Retry                   executor.Retry
	Timeout                 time.Duration
	OnCrash                 executor.CrashPolicy
	Misfire                 executor.MisfirePolicy
	Overlap                 executor.OverlapPolicy
	CatchupWindow           time.Duration
	MaxAttempts, MaxRunning int
	MaxJobs                 int
	RunOn                   map[string]string
	Pool                    string
	Strategy                string
	Tracking                executor.Tracking
	StartPaused             bool
	Notify                  *[]string // nil: those of notify.default
	Revision                *int

	path   string
	at     *yaml.Node       // the name
	given  map[string]usage // the keys that the job has, or that defaults have for it
	broken bool             // a key has a problem
}

// usage is a key that applies to a job.
type usage struct {
	place
	path   string
	own    bool // of the job itself, not of defaults
	broken bool // its value has a problem and was not stored
}

// shards are the number of shards and their parameters.
type shards struct {
	Count  int
	Params map[int]string
}

// after is the schedule of a job that follows others.
type after struct {
	Jobs []string
	On   string // success, end or failure; empty means success
}

// value is a text of the file, or one that is stored elsewhere. Exactly one field is set, or none
// for the empty text.
type value struct {
	Text     string `json:",omitempty"`
	FromFile string `json:",omitempty"`
	FromEnv  string `json:",omitempty"`
}

// httpSpec is a request as it is written.
type httpSpec struct {
	Method    string           `json:",omitempty"`
	URL       string           `json:",omitempty"`
	Header    map[string]value `json:",omitempty"`
	Body      string           `json:",omitempty"`
	OK        [][2]int         `json:",omitempty"`
	Permanent [][2]int         `json:",omitempty"`
	Timeout   time.Duration    `json:",omitempty"`
	TLS       TLSFiles         `json:",omitzero"`
}

// Registry is the store that the file names. It holds no secrets, but the names of files and
// environment variables that do.
type Registry struct {
	URL                       string // "memory", or a URL of package registryurl; empty if there is none
	UserFile, UserEnv         string
	PasswordFile, PasswordEnv string
	TLS                       TLSFiles
}

// TLSFiles are the files of a TLS configuration. If any is set, connections use TLS.
type TLSFiles struct {
	Enabled    bool   `json:",omitempty"` // needed only without the others
	CAFile     string `json:",omitempty"`
	CertFile   string `json:",omitempty"`
	KeyFile    string `json:",omitempty"`
	ServerName string `json:",omitempty"`
}
