package main

import "fmt"

// comparisons are all that is measured.
var comparisons = []comparison{
	lockOnEtcd(2, "20 times the rate"),
	lockOnEtcd(8, ""),
	lockOnZooKeeper(2),
	lockOnZooKeeper(8),
	{
		name: "leader hand-over by resigning, etcd", budget: "10 ms median",
		ours:   subject{"coordinator.Campaign", handOffs(candidates, newCampaigner(onEtcd))},
		theirs: subject{"concurrency.Election", handOffs(candidates, newEtcdElection)},
	},
	{
		name: "leader hand-over by resigning, ZooKeeper", budget: "10 ms median",
		ours: subject{"coordinator.Campaign", handOffs(candidates, newCampaigner(onZooKeeper))},
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
		ours:   subject{"registry.Lock", handOffs(contenders, newOurLock(onEtcd))},
		theirs: subject{"concurrency.Mutex", handOffs(contenders, newEtcdMutex)},
	}
}

func lockOnZooKeeper(contenders int) comparison {
	return comparison{
		name: fmt.Sprintf("lock, %d contenders, ZooKeeper", contenders), budget: "ahead",
		ours:   subject{"registry.Lock", handOffs(contenders, newOurLock(onZooKeeper))},
		theirs: subject{"zk.Lock", handOffs(contenders, newZKLock)},
	}
}
