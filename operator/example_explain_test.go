package operator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

// A program asks why last midnight's fire of a job did not run, and has the name of the job wrong. With
// executor.Compile, the Operator knows the instants of schedules (WithCompiler).
func ExampleOperator_Explain() {
	server := memory.New() // a program has a client of etcd or ZooKeeper here
	op, err := operator.New(server.Client("console"), "billing", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	midnight := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	e, err := op.Explain(context.Background(), "settel", operator.AllShards, midnight)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range e.Answers {
		fmt.Println(a.Summary)
		for _, g := range a.Gates {
			fmt.Println(" ", g.Verdict, g.Name, "-", g.Detail)
		}
		fmt.Println("do:", a.Do)
	}
	// Output:
	// The fire of 2026-11-23T00:00:00Z has not run: no process has stored a definition of the job.
	//   stop defined - no process has stored a definition of the job
	// do: check the names of the job, the namespace and the group; if they are right, start a process that registers the job
}
