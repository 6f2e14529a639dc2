package explore

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// guardOf returns the name of the guard at an item of a transaction, which is a condition or an operation
// that implies one. It consists of the purpose of the transaction and the condition.
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

// purposeOf returns the purpose of a transaction, according to the records that it writes.
func purposeOf(k record.Keys, t *registry.Txn) string {
	writes := map[string]registry.OpKind{}
	for _, op := range t.Then {
		writes[recordKindOf(k, op.Key)] = op.Kind
	}
	has := func(kind string) bool { return writes[kind] != 0 }
	isOfLeader := len(t.If) > 0 && t.If[0].Key == k.Leader()
	switch {
	case isOfLeader && writes["definition"] == registry.OpDelete && writes["control"] != registry.OpDelete:
		return "rest"
	case isOfLeader && has("definition"):
		return "wake"
	case isOfLeader && has("defined"):
		return "delete"
	case has("defined"):
		return purposeOfOperator(t)
	case len(t.Then) == 0:
		return "check"
	case writes["control"] == registry.OpDelete && len(t.If) > 0 && t.If[0].Key == k.Leader():
		return "retire"
	case writes["plan"] == registry.OpDelete:
		return "forget"
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

// purposeOfOperator returns the purpose of an operator's write of the record of a defined job.
func purposeOfOperator(t *registry.Txn) string {
	for _, op := range t.Then {
		if d, err := record.DecodeDefined(op.Value); err == nil && d.IsDeleted() {
			return "undefine"
		}
	}
	return "define"
}

// recordKindOf returns which kind of record a key holds.
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
	case k.Ends():
		return "ends"
	case k.Kinds():
		return "kind"
	}
	switch {
	case key.Dir().Dir() == k.DefinedIn(0).Dir():
		return "defined"
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
