package importing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// convertState reads what operators and instances of Elastic-Job have recorded of a job: disabled
// servers and items, items in progress, offsets.
func (e *elasticJob) convertState() {
	e.convertServers()
	items := e.node.at("sharding").items()
	if len(items) == 0 {
		items = e.node.at("execution").items() // 1.x
	}
	for _, mark := range []struct{ node, format string }{
		{"disabled", "Disabled items in Elastic-Job: %[2]s. A definition disables no shards: rota disable %[1]s --shards %[2]s."},
		{"running", "Items that were running in Elastic-Job at the time of the import: %[2]s."},
		{"misfire", "Items that had missed a fire at the time of the import: %[2]s. Rota makes no run for it: rota trigger %[1]s --shards %[2]s."},
		{"failover", "Items that were failed over at the time of the import: %[2]s."},
	} {
		var marked []int
		for i, n := range items {
			if n.at(mark.node) != nil {
				marked = append(marked, i)
			}
		}
		if len(marked) > 0 {
			e.note(mark.format, e.job.name, shardList(marked))
		}
	}
	var waiting []int
	for i := range e.node.at("leader/failover/items").items() {
		waiting = append(waiting, i)
	}
	if len(waiting) > 0 {
		e.note("Items that waited for a failover at the time of the import: %s. Rota makes no run for them: rota trigger %s --shards %[1]s.",
			shardList(waiting), e.job.name)
	}
	e.noteOffsets()
}

// noteOffsets adds the positions that data flows of 1.x stored.
func (e *elasticJob) noteOffsets() {
	items := e.node.at("offset").items()
	var offsets []string
	for _, i := range slices.Sorted(maps.Keys(items)) {
		if value := items[i].value; value != "" {
			offsets = append(offsets, fmt.Sprintf("%d=%q", i, value))
		}
	}
	if len(offsets) > 0 {
		e.note("Offsets of items: %s. A definition holds none: have Fetch begin there if handler.Page.Offset is empty.", strings.Join(offsets, ", "))
	}
}

func (e *elasticJob) convertServers() {
	servers := e.node.at("servers")
	var disabled, paused []string
	for _, address := range servers.names() {
		n := servers.children[address]
		switch {
		case strings.EqualFold(n.value, "DISABLED") || n.at("disabled") != nil:
			disabled = append(disabled, address)
		case n.at("paused") != nil || n.at("stoped") != nil: // 1.x; one version has the misspelling
			paused = append(paused, address)
		}
	}
	configured, err := e.config.flag("disabled", false)
	switch total := len(servers.names()); {
	case total > 0 && len(disabled)+len(paused) == total, total == 0 && err == nil && configured:
		e.job.startPaused = true
		e.note("The job is disabled on all servers of Elastic-Job. It starts paused: leave it so unless it is to run.")
		return
	case len(disabled) > 0:
		e.note("Disabled servers in Elastic-Job: %s. A definition disables no host: rota disable %s --host NAME, where NAME is executor.Options.Host.",
			strings.Join(disabled, ", "), e.job.name)
	}
	if len(paused) > 0 {
		e.note("Paused servers in Elastic-Job: %s: no equal, because rota pauses a job everywhere: rota pause %s, or disable the hosts.",
			strings.Join(paused, ", "), e.job.name)
	}
}
