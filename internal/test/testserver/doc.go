// Package testserver runs etcd and ZooKeeper as processes on the loopback interface, for
// tests and experiments: single servers and ensembles that can be killed, paused,
// isolated and restarted.
//
// The servers keep their data in temporary files without syncing them to disk, so they
// are fast and lose everything at Stop. They end with the process that started them, on
// Linux even if it is killed. Package provision provides their binaries.
package testserver
