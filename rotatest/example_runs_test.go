package rotatest_test

import "testing"

// The file of an example is shown as a whole, and so has no test of its own.
func TestExampleOfRun(t *testing.T) { settleSurvivesACrash(t) }

func TestExampleOfLostReplies(t *testing.T) { settleSurvivesLostReplies(t) }
