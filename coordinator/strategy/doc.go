// Package strategy has the strategies by which shards are assigned to instances, and the types to
// write one. executor.Options.Strategies and coordinator.Config.Strategies make a strategy of your
// own known by a name, for jobs to ask for.
package strategy
