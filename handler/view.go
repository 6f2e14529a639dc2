package handler

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/rota-dev/rota/executor"
)

// view is the data of a run, for templates and as JSON. It has no methods, as a template could
// call them.
type view struct {
	ID         string  `json:"id"`
	Key        string  `json:"key"`
	Job        string  `json:"job"`
	Instance   string  `json:"instance"`
	Shard      int     `json:"shard"`
	Shards     int     `json:"shards"`
	Param      string  `json:"param"`
	ShardParam string  `json:"shard_param"`
	FireTime   instant `json:"fire"`
	Attempt    int     `json:"attempt"`
	Retries    int     `json:"retries"`
	Reason     string  `json:"reason"`
	Trigger    uint64  `json:"trigger"`
	Fence      uint64  `json:"fence"`
}

// instant prints as RFC 3339.
type instant struct{ time.Time }

func (i instant) String() string { return i.Format(time.RFC3339Nano) }

func viewOf(r *executor.Run) view {
	return view{
		ID: r.ID, Key: r.Key, Job: r.Job, Instance: r.Instance, Shard: r.Shard, Shards: r.Shards,
		Param: r.Param, ShardParam: r.ShardParam, FireTime: instant{r.FireTime.UTC()},
		Attempt: r.Attempt, Retries: r.Retries, Reason: r.Reason.String(), Trigger: r.Trigger, Fence: r.Fence,
	}
}

// environment returns v as variables. All of them are always present, so that none is
// inherited from the process by mistake.
func (v view) environment() ([]string, error) {
	text, err := toJSON(v)
	if err != nil {
		return nil, err
	}
	return []string{
		"ROTA_ID=" + v.ID,
		"ROTA_KEY=" + v.Key,
		"ROTA_JOB=" + v.Job,
		"ROTA_INSTANCE=" + v.Instance,
		"ROTA_SHARD=" + strconv.Itoa(v.Shard),
		"ROTA_SHARDS=" + strconv.Itoa(v.Shards),
		"ROTA_PARAM=" + v.Param,
		"ROTA_SHARD_PARAM=" + v.ShardParam,
		"ROTA_FIRE=" + v.FireTime.String(),
		"ROTA_ATTEMPT=" + strconv.Itoa(v.Attempt),
		"ROTA_RETRIES=" + strconv.Itoa(v.Retries),
		"ROTA_REASON=" + v.Reason,
		"ROTA_TRIGGER=" + strconv.FormatUint(v.Trigger, 10),
		"ROTA_FENCE=" + strconv.FormatUint(v.Fence, 10),
		"ROTA_RUN=" + text,
	}, nil
}

func toJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}
