//go:build !race

package onecpu

const raceEnabled = false
