// Command rota shows and operates fleets of instances that run sharded, scheduled jobs.
package main

import "github.com/rota-dev/rota/cmd/rota/rotacmd"

func main() { rotacmd.Main(rotacmd.Options{}) }
