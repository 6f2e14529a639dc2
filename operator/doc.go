// Package operator shows the state of a fleet and acts on it: consoles, admin pages and scripts need this package only, and a process
// that uses it need not be in the fleet.
//
// An [Operator] reads and writes the records of one group. Its calls are safe beside the fleet and beside other operators: each
// change is one conditional transaction, and the leader puts it into force with its next plan. The state that it shows is the state
// on record.
//
//   - Look: [Operator.Group], [Operator.Jobs], [Operator.Instances], [Operator.Status], [Operator.Watch].
//   - Ask why: [Operator.Explain] for one fire of one shard, [Operator.Diagnose] for the whole group.
//   - Act: pause, disable, drain, trigger, retry, backfill, cancel, override, retire. [Operator.As] records the caller and the reason.
//   - Define jobs as data, whose handlers the fleet has registered as kinds: [Operator.Define], [Operator.Definitions], [Operator.Delete].
//
// The results have JSON tags: they are the answers of the command rota as JSON, which adds texts to them. A nil list is null;
// the command prints it as [].
package operator
