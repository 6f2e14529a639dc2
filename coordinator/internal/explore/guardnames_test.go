package explore

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Every condition that the protocol puts into a transaction has a name here, made of what
// the transaction is for and what the condition is about.

// guardOf names an item of a transaction: a condition, or what an operation implies.
func guardOf(k record.Keys, t *registry.Txn, item int) string {
	purpose := purposeOf(k, t)
	if item < len(t.If) {
		c := t.If[item]
		switch c.Kind {
		case registry.CondAlive:
			return purpose + ": alive"
		case registry.CondDead:
			return purpose + ": dead"
		case registry.CondAbsent:
			return purpose + ": no " + recordKindOf(k, c.Key)
		}
		return purpose + ": " + recordKindOf(k, c.Key) + " as known"
	}
	op := t.Then[item-len(t.If)]
	switch op.Kind {
	case registry.OpCreate:
		return purpose + ": first " + recordKindOf(k, op.Key)
	case registry.OpCreateOwned:
		return purpose + ": free " + recordKindOf(k, op.Key)
	case registry.OpDelete:
		return purpose + ": delete " + recordKindOf(k, op.Key)
	}
	return purpose + ": set " + recordKindOf(k, op.Key)
}

// purposeOf tells what a transaction is for by what it writes.
func purposeOf(k record.Keys, t *registry.Txn) string {
	writes := map[string]registry.OpKind{}
	for _, op := range t.Then {
		writes[recordKindOf(k, op.Key)] = op.Kind
	}
	has := func(thing string) bool { return writes[thing] != 0 }
	switch {
	case len(t.Then) == 0:
		return "check"
	case has("plan"):
		return "plan"
	case writes["member"] == registry.OpDelete, writes["claims"] == registry.OpDelete:
		return "reap"
	case has("claims"):
		return "claim"
	case has("state"):
		return "save"
	case has("leader") && writes["seat"] == registry.OpDelete:
		return "resign"
	case has("leader"):
		return "elect"
	case writes["seat"] == registry.OpCreateOwned:
		return "accept"
	case has("seat"):
		return "name successors"
	case has("instance"):
		return "join"
	case has("member"):
		return "publish"
	}
	return "operate"
}

func recordKindOf(k record.Keys, key registry.Key) string {
	switch key.Dir() {
	case k.Plans():
		return "plan"
	case k.Members():
		return "member"
	case k.Instances():
		return "instance"
	case k.Jobs():
		return "definition"
	case k.Controls():
		return "control"
	}
	switch {
	case key == k.Leader():
		return "leader"
	case key == k.Seat():
		return "seat"
	case key.Dir().Dir() == k.ClaimsOf("x").Dir():
		return "claims"
	case key.Dir().Dir() == k.Data("x", 0).Dir().Dir():
		return "state"
	}
	return "other"
}
