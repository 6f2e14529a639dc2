package main

import "fmt"

// comparisons lists all comparisons.
var comparisons = []comparison{
	lockOnEtcd(2, "20 times the rate"),
	lockOnEtcd(8, ""),
	lockOnZooKeeper(2),
	lockOnZooKeeper(8),
	{
		name: "leader hand-over by resigning, etcd", budget: "10 ms median", paced: true,
		ours:   subject{"coordinator.Campaign", handOffs(candidates, term, newCampaigner(onEtcd))},
		theirs: subject{"concurrency.Election", handOffs(candidates, term, newEtcdElection)},
	},
	{
		name: "leader hand-over by resigning, ZooKeeper", budget: "10 ms median", paced: true,
		ours: subject{"coordinator.Campaign", handOffs(candidates, term, newCampaigner(onZooKeeper))},
	},
	{
		name:   "write to event elsewhere, etcd",
		ours:   subject{"registry.Watch", watchOurs(onEtcd)},
		theirs: subject{"clientv3 Watch", watchEtcd},
	},
	{
		name:   "write to event elsewhere, ZooKeeper",
		ours:   subject{"registry.Watch", watchOurs(onZooKeeper)},
		theirs: subject{"zk GetW", watchZooKeeper},
	},
}

func lockOnEtcd(contenders int, budget string) comparison {
	return comparison{
		name: fmt.Sprintf("lock, %d contenders, etcd", contenders), budget: budget,
		ours:   subject{"registry.Lock", handOffs(contenders, 0, newOurLock(onEtcd))},
		theirs: subject{"concurrency.Mutex", handOffs(contenders, 0, newEtcdMutex)},
	}
}

func lockOnZooKeeper(contenders int) comparison {
	return comparison{
		name: fmt.Sprintf("lock, %d contenders, ZooKeeper", contenders), budget: "ahead",
		ours:   subject{"registry.Lock", handOffs(contenders, 0, newOurLock(onZooKeeper))},
		theirs: subject{"zk.Lock", handOffs(contenders, 0, newZKLock)},
	}
}
