package record

import (
	"encoding/json"
	"errors"

	"github.com/rota-dev/rota/internal/shardset"
)

// Posted is an act that the transaction of a user has posted. Leaders do it, and delete the record in the same commit.
type Posted struct {
	Job     string         `json:"job"`
	At      Instant        `json:"at"` // of the call, by the clock of its process
	By      string         `json:"by,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Trigger *PostedTrigger `json:"trigger,omitempty"` // this or Define; neither: an act of a later version
	Define  *PostedDefine  `json:"define,omitempty"`
}

// PostedTrigger is the request for a run.
type PostedTrigger struct {
	Param  string        `json:"param,omitempty"`
	Shards *shardset.Set `json:"shards,omitempty"` // nil for all
}

// PostedDefine is a definition without the defaults of its kind.
type PostedDefine struct {
	Fields           json.RawMessage `json:"fields"`
	DeleteAfter      Duration        `json:"delete_after,omitzero"`
	IfAbsent         bool            `json:"if_absent,omitempty"`
	IfRevision       int             `json:"if_revision,omitempty"` // 0: any
	AllowUnknownKind bool            `json:"allow_unknown_kind,omitempty"`
	AllowNoFires     bool            `json:"allow_no_fires,omitempty"`
}

// DecodePosted decodes and checks a posted act.
func DecodePosted(b []byte) (Posted, error) {
	p, err := Decode[Posted](b)
	if err == nil && p.Trigger != nil && p.Define != nil {
		err = errors.New("trigger and define exclude each other")
	}
	return p, err
}
