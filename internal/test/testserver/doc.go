// Package testserver runs etcd and ZooKeeper as processes on the loopback interface, for
// tests and for trying things out: single servers and ensembles, which can be killed,
// paused, cut off and restarted.
//
// The servers keep their data in temporary files and do not sync them to the disk, so
// they are quick and forget everything with Stop. They die with the process that started
// them, even if it is killed (on Linux). What runs them, package provision gets.
package testserver
