package main

import (
	"os"
	"testing"
)

// beCommand is set in the environment of processes that the tests start of their own
// binary: those are the command.
const beCommand = "ROTA_TEST_BE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) != "" {
		main()
		return
	}
	extraEnv = []string{beCommand + "=1"}
	m.Run()
}
