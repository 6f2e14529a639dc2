package coordinator

import (
	"fmt"
	"testing"
)

func benchGroup(jobs, shards, n int) ([]balanceJob, []balanceMember) {
	members := make([]balanceMember, n)
	all := make([]int, n)
	for i := range members {
		members[i].id = fmt.Sprintf("instance-%03d-4f3a2b1c", i)
		all[i] = i
	}
	js := make([]balanceJob, jobs)
	for j := range js {
		js[j] = balanceJob{owners: make([]string, shards), candidates: all}
	}
	return js, members
}

func settle(js []balanceJob, ms []balanceMember) {
	for j, a := range balance(js, ms) {
		js[j].owners = a
	}
}

func BenchmarkBalance(b *testing.B) {
	for _, c := range []struct{ jobs, shards, n int }{{1, 10000, 200}, {10000, 1, 50}, {10000, 1, 200}, {2500, 4, 50}, {10000, 7, 10}, {1000, 10, 50}, {10000, 77, 200}} {
		name := fmt.Sprintf("%dx%d over %d", c.jobs, c.shards, c.n)
		run := func(what string, js []balanceJob, ms []balanceMember) {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					balance(js, ms)
				}
			})
		}
		js, ms := benchGroup(c.jobs, c.shards, c.n)
		run("fresh", js, ms)
		settle(js, ms)
		run("steady", js, ms)
		js2, ms2 := benchGroup(c.jobs, c.shards, c.n+1)
		for j := range js2 {
			js2[j].owners = js[j].owners
		}
		run("join", js2, ms2)
		js3, ms3 := benchGroup(c.jobs, c.shards, c.n-1)
		for j := range js3 {
			js3[j].owners = js[j].owners
		}
		run("leave", js3, ms3)
		js4, ms4 := benchGroup(c.jobs, c.shards, 1)
		settle(js4, ms4)
		_, ms4 = benchGroup(c.jobs, c.shards, c.n)
		for j := range js4 {
			js4[j].candidates = js[j].candidates
		}
		run("onetoall", js4, ms4)
	}
}
