// Package strategy defines how a strategy assigns the shards of a job to instances, and has the
// built-in strategies.
//
// The leader of a group runs a job's strategy and writes the result into the job's plan. A strategy
// only chooses owners: rota moves a shard after its current run has ended, fails over the shards of
// expired instances, and keeps shards in place while a strategy fails.
//
// The built-in strategies are [Sticky], which is the default, [Single], and Elastic-Job's [Average],
// [Odevity] and [Rotate]. To add one, write a [Func], register it under a name in
// executor.Options.Strategies or coordinator.Config.Strategies of every instance, and set the job's
// Strategy to that name.
package strategy
