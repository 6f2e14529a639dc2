package explore

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// guardSite is a place in the source that adds a condition to a transaction, or an operation that
// implies one.
type guardSite struct {
	site  string   // function and constructor
	names []string // of the guards that it makes, see guardOf
}

// twins are guards that are redundant with another one, each implied by an operation. A violation needs
// both to be removed.
var twins = map[string]string{
	"claim: free ends":    "claim: set claims",
	"claim: set ends":     "claim: set claims",
	"reap: delete member": "reap: dead",
	"join: first member":  "join: free instance",
	"resign: delete seat": "resign: set leader",
	"resign: set leader":  "resign: delete seat",
}

// witness is a path on which a promise is broken while a guard is removed.
type witness struct {
	scenario string
	seed     uint64   // of a random path, if steps is empty
	steps    []string // prefixes of labels. After them the world runs to rest without faults
}

// guardSites are all places in coordinator and executor.
var guardSites = []guardSite{
	{"Claimer.NextWrite Alive", []string{"claim: alive"}},
	{"Namespace.requirements Absent", []string{"claim: no other"}},
	{"Namespace.requirements At", []string{"claim: other as known"}},
	{"Claimer.composeShare At", []string{"claim: plan as known"}},
	{"Claimer.composeShare Create", []string{"claim: first claims"}},
	{"Claimer.composeShare Set", []string{"claim: set claims"}},
	{"Claimer.writeEnds CreateOwned", []string{"claim: free ends"}},
	{"Claimer.writeEnds Set", []string{"claim: set ends"}},

	{"Leader.CommitDecision At", []string{"plan: leader as known", "reap: leader as known", "end pause: leader as known", "retire: leader as known", "rest: leader as known"}},
	{"Change.EncodeShare Dead", []string{"plan: dead"}},
	{"Change.EncodeShare Create", []string{"plan: first plan"}},
	{"Change.EncodeShare Set", []string{"plan: set plan"}},
	{"jobPlanner.failOverExpired Absent", []string{"plan: no claims"}},
	{"jobPlanner.failOverExpired Delete", []string{"plan: delete claims"}},
	{"jobPlanner.absorbOutcomes Delete", []string{"plan: delete claims"}},
	{"jobPlanner.acceptRequests Set", []string{"plan: set control"}},
	{"Leader.commitEndedPauses Set", []string{"end pause: set control"}},
	{"Leader.commitRetirements At", []string{"retire: control as known"}},
	{"Leader.deleteStates Delete", []string{"retire: delete state"}},
	{"round.retire Absent", []string{"retire: no plan", "retire: no definition"}},
	{"round.retire Delete", []string{"retire: delete plan", "retire: delete definition", "retire: delete control"}},

	{"Leader.commitRests At", []string{"rest: definition as known"}},
	{"jobPlanner.createPlan At", []string{"plan: defined as known"}},
	{"jobPlanner.deleteRecords Absent", []string{"rest: no plan", "rest: no claims"}},
	{"jobPlanner.deleteRecords Delete", []string{"rest: delete definition", "rest: delete plan", "rest: delete claims"}},
	{"jobPlanner.deleteReplaced Absent", []string{"rest: no defined", "rest: no control"}},
	{"jobPlanner.deleteReplaced Delete", []string{"rest: delete control"}},
	{"jobPlanner.deleteReplaced Set", []string{"rest: set defined"}},
	{"jobPlanner.requireCreation At", []string{"plan: defined as known"}},
	{"jobPlanner.restWith Set", []string{"rest: set defined"}},
	{"Leader.carryOut At", []string{"wake: leader as known", "delete: leader as known"}},
	{"Leader.storeDefined At", []string{"wake: defined as known"}},
	{"Leader.storeDefined Absent", []string{"wake: no plan"}},
	{"Leader.storeDefined Create", []string{"wake: first definition"}},
	{"Leader.storeDefined Set", []string{"wake: set definition"}},
	{"Leader.deleteOver At", []string{"delete: defined as known"}},
	{"Leader.deleteOver Absent", []string{"delete: no definition", "delete: no plan", "delete: no control"}},
	{"Leader.deleteOver Delete", []string{"delete: delete defined", "delete: delete control"}},
	{"Leader.deleteOver Set", []string{"delete: set defined"}},
	{"Leader.publishCounts At", []string{"count: leader as known"}},
	{"Leader.publishCounts Create", []string{"count: first counts"}},
	{"Leader.publishCounts Set", []string{"count: set counts"}},
	{"Leader.commitDeals At", []string{"deal: leader as known"}},
	{"Leader.decideDeal Dead", []string{"deal: dead"}},
	{"Leader.decideDeal Create", []string{"deal: first slots"}},
	{"Leader.decideDeal Set", []string{"deal: set slots"}},
	{"Leader.decideDeal Delete", []string{"deal: delete slots"}},
	{"Claimer.writeDemand Alive", []string{"demand: alive"}},
	{"Claimer.writeDemand CreateOwned", []string{"demand: free demand"}},
	{"Claimer.writeDemand Set", []string{"demand: set demand"}},
	{"Member.TryStoreKind Create", []string{"operate: first kind"}},
	{"Member.TryStoreKind Set", []string{"operate: set kind"}},

	{"Reaping.PackLoads Dead", []string{"reap: dead"}},
	{"round.reapIncarnation Absent", []string{"reap: no plan"}},
	{"round.reapIncarnation Delete", []string{"reap: delete claims", "reap: delete member"}},

	{"State.SuccessionTxn Dead", []string{"elect: dead"}},
	{"State.SuccessionTxn Create", []string{"elect: first leader"}},
	{"State.SuccessionTxn Set", []string{"elect: set leader"}},
	{"State.SuccessionTxn CreateOwned", []string{"elect: free seat"}},
	{"State.SuccessionTxn At", []string{"elect: seat as known"}},
	{"State.AcceptanceTxn At", []string{"accept: leader as known"}},
	{"State.AcceptanceTxn CreateOwned", []string{"accept: free seat"}},
	{"State.ResignationTxn Alive", []string{"resign: alive"}},
	{"State.ResignationTxn Set", []string{"resign: set leader"}},
	{"State.ResignationTxn Delete", []string{"resign: delete seat"}},
	{"Elector.PublishSeat Set", []string{"name successors: set seat"}},

	{"Member.BuildJoinTxn CreateOwned", []string{"join: free instance"}},
	{"Member.BuildJoinTxn Create", []string{"join: first member"}},
	{"Member.PublishState Alive", []string{"publish: alive"}},
	{"Member.PublishState Set", []string{"publish: set member"}},

	{"putOp Create", []string{"operate: first control", "define: first defined"}},
	{"putOp Set", []string{"operate: set control", "define: set defined", "undefine: set defined"}},
	{"asRead Absent", []string{"operate: no plan", "define: no definition"}},
	{"asRead At", []string{"operate: plan as known", "define: definition as known"}},
	{"storedJob.asRead At", []string{"operate: defined as known"}},
	{"definer.decide Absent", []string{"define: no plan"}},
	{"definer.decide Delete", []string{"define: delete control"}},
	{"definer.prepare At", []string{"define: defined as known"}},
	{"definer.readCounts Create", []string{"count: first counts"}},
	{"Operator.readDeletion Absent", []string{"undefine: no definition", "undefine: no plan", "undefine: no control"}},
	{"Operator.forgetTxn Absent", []string{"forget: no definition", "forget: no plan", "forget: no control"}},
	{"Operator.forgetTxn Delete", []string{"forget: delete definition", "forget: delete plan", "forget: delete control"}},
	{"Operator.addExpiredClaims Absent", []string{"forget: no claims"}},
	{"Operator.addExpiredClaims Delete", []string{"forget: delete claims"}},
	{"Operator.addExpiredClaims Dead", []string{"forget: dead"}},
	{"Operator.recheckForgotten Create", []string{"operate: first definition"}},
	{"Operator.deleteStates Delete", []string{"save: delete state"}},
	{"Operator.settle At", []string{"settle: posted as known"}},
	{"Operator.settle Delete", []string{"settle: delete posted"}},
	{"Member.decideDefinitionWrite Create", []string{"operate: first definition"}},
	{"Member.decideDefinitionWrite Set", []string{"operate: set definition"}},
	{"Member.readMeta Create", []string{"operate: first other"}},
	{"Member.readMeta Set", []string{"operate: set other"}},
	{"Member.recordRestored Set", []string{"operate: set other"}},
	{"Member.restoreIntent Create", []string{"operate: first control"}},
	{"Member.restoreIntent Set", []string{"operate: set other"}},

	{"writes.commitThen Alive", []string{"save: alive", "operate: alive"}},
	{"Access.Save Create", []string{"save: first state"}},
	{"Access.Save Set", []string{"save: set state"}},

	{"campaign.resign Alive", []string{"check: alive"}},
	{"Leader.restoreRecords At", []string{"restore: leader as known"}},
	{"Edits.restoreConditions At", []string{"restore: plan as known"}},
	{"Edits.offerCondition At", []string{"restore: member as known"}},
	{"Edits.findRetiredDefinitions Create", []string{"restore: first definition"}},
	{"restoreDefinition Create", []string{"restore: first definition"}},
	{"restoreDefinition Set", []string{"restore: set definition"}},
	{"Leader.readSuspect Alive", []string{"name incomplete: alive"}},
}

func TestGuards_AreNamedAtEachPlaceInTheSource(t *testing.T) {
	var named []string
	for _, s := range guardSites {
		named = append(named, s.site)
	}
	slices.Sort(named)
	require.Equal(t, sitesIn(t, append(coordinatorDirs(t), "../../../executor")...), named)
}

// testedElsewhere are the guards that no small world meets, or in which none breaks a promise without them, as no
// small world forgets a job; and the test that fails without each.
var testedElsewhere = map[string]string{
	"restore: leader as known":    "TestRestore_Guards/the term",
	"restore: first definition":   "TestRestore_Guards/a definition that is there",
	"restore: set definition":     "TestRestore_Guards/a definition that is there",
	"restore: plan as known":      "TestRestore_LeavesAForgottenJob/whose plan is gone too",
	"restore: member as known":    "TestRestore_LeavesAForgottenJob/that no instance offers any more",
	"rest: leader as known":       "TestRests_Guards/the term",
	"delete: leader as known":     "TestSteps_Guards/the term",
	"rest: definition as known":   "TestRests_Guards/the definition as read",
	"rest: no plan":               "TestRests_Guards/the plan as read",
	"rest: no claims":             "TestRests_Guards/no claims, as read",
	"rest: delete definition":     "TestRests_Guards/the definition as read",
	"rest: delete plan":           "TestRests_Guards/the plan as read",
	"rest: delete claims":         "TestRests_Guards/claims as read",
	"rest: no defined":            "TestRests_Guards/a record with a value of another program is not taken for a deletion",
	"rest: delete control":        "TestRests_Guards/an intent for the next creation stays",
	"rest: set defined":           "TestRests_Guards/the record of the defined job as read",
	"wake: leader as known":       "TestSteps_Guards/the term",
	"wake: defined as known":      "TestSteps_Guards/wake: the record as read",
	"wake: no plan":               "TestSteps_Guards/wake: no plan",
	"wake: first definition":      "TestSteps_Guards/wake: no definition",
	"wake: set definition":        "TestSteps_Guards/update: the definition as read",
	"delete: defined as known":    "TestSteps_Guards/delete: the record as read, for the states too",
	"delete: no definition":       "TestSteps_Guards/delete: no definition and no plan",
	"delete: no control":          "TestSteps_Guards/delete: the intent as known",
	"rest: no control":            "TestRests_Guards/an intent that is not observed yet is not left behind",
	"delete: no plan":             "TestSteps_Guards/delete: no definition and no plan",
	"delete: set defined":         "TestSteps_Guards/delete: the record as read, for the states too",
	"delete: delete defined":      "TestSteps_Guards/a deleted job leaves a tombstone, which is deleted after its time, on condition that it is as known",
	"delete: delete control":      "TestSteps_Guards/delete: the intent as known",
	"count: leader as known":      "TestCounts_ArePublished/a leader whose term is over writes none",
	"count: first counts":         "TestCounts_ArePublished",
	"count: set counts":           "TestCounts_ArePublished",
	"define: no definition":       "TestDefine/refuses the name of a job that is registered in code, also one that is registered meanwhile",
	"define: definition as known": "TestDefine_AfterDelete/leaves the records of a job that is awake to the leader, and begins with an intent of its own",
	"define: no plan":             "TestDefine_NextFire/is decided again if a leader has made a plan meanwhile",
	"define: delete control":      "TestDefine_AfterDelete/leaves nothing of a job that rested: neither its intent nor its states",
	"define: defined as known":    "TestDefine_AfterDelete/leaves nothing of a job that rested: neither its intent nor its states",
	"operate: defined as known":   "TestResting",
	"undefine: no definition":     "TestDelete/notices what becomes of the job meanwhile",
	"undefine: no plan":           "TestDelete/notices what becomes of the job meanwhile",
	"undefine: no control":        "TestDelete/notices what becomes of the job meanwhile",
	"retire: leader as known":     "TestRetirements_Guards/the term",
	"retire: control as known":    "TestRetirements_Guards/the intent as read, for the states too",
	"retire: delete state":        "TestOperator_Retire/deletes a job, with the states of its shards, once no instance offers it",
	"retire: delete control":      "TestRetirements_Guards/the intent as read, for the states too",
	"retire: delete plan":         "TestRetirements_Guards/the plan as read",
	"retire: delete definition":   "TestRetirements_Guards/the definition as read",
	"retire: no plan":             "TestRetirements_Guards/no plan and no definition",
	"retire: no definition":       "TestRetirements_Guards/no plan and no definition",
	"end pause: leader as known":  "TestEndedPauses_Guards/the term",
	"end pause: set control":      "TestEndedPauses_Guards/the record as read",
	"operate: plan as known":      "TestOperator/numbers the first trigger after those of a plan that a leader makes at the same time",
	"operate: no plan":            "TestOperator/numbers the first trigger after those of a plan that a leader makes at the same time",
	"forget: no definition":       "TestForget_Guards/no plan, no control and no definition",
	"forget: no plan":             "TestForget_Guards/no plan, no control and no definition",
	"forget: no control":          "TestForget_Guards/no plan, no control and no definition",
	"forget: delete definition":   "TestForget_Guards/owners whose sessions have expired, with claims and without",
	"forget: delete plan":         "TestOperator_Forget/is refused if an instance joins with the job at the same time",
	"forget: delete control":      "TestForget_Guards/owners whose sessions have expired, with claims and without",
	"forget: no claims":           "TestForget_Guards/owners whose sessions have expired, with claims and without",
	"forget: delete claims":       "TestForget_Guards/owners whose sessions have expired, with claims and without",
	"forget: dead":                "TestForget_Guards/owners whose sessions have expired, with claims and without",
	"save: delete state":          "TestOperator_Forget/deletes all records of a job that no instance offers",
	"name incomplete: alive":      "TestMissing/an incarnation whose session has expired is not named",
	"check: alive":                "TestCampaign_Returns/never on a loss that lead was told of by the store",
	"reap: delete claims":         "TestPlan_Failover/deletes claims only with a plan, or on condition that there is none",
	"reap: no plan":               "TestPlan_Failover/deletes claims only with a plan, or on condition that there is none",
	"save: alive":                 "TestOwned_Save/that arrives after the session has ended changes nothing",
	"save: first state":           "TestOwned_Save/does not overwrite what another hand has written, until State has been called",
	"save: set state":             "TestOwned_Save/does not overwrite what another hand has written, until State has been called",
	"settle: posted as known":     "TestPosted/an act has no effect before its transaction is committed, and one after",
	"settle: delete posted":       "TestPosted/an act has no effect before its transaction is committed, and one after",
	"operate: alive":              "TestRun_CommitIsJudgedByTheStore, of package executor",
	"operate: first other":        "TestMember_FenceBase",
	"claim: other as known":       "TestStoreLoss_FencesOfAProcessThatRemembersNothing",
	"claim: no other":             "TestStoreLoss_FencesOfAProcessThatRemembersNothing",
	"operate: set other":          "TestStoreLoss_Guards",
	"deal: leader as known":       "TestDeals_Guards/the term",
	"deal: dead":                  "TestDeals_Guards/the slots of a session that has not ended stay its own",
	"deal: first slots":           "TestDeals_Guards/no slots",
	"deal: set slots":             "TestDeals_Guards/the slots as read",
	"deal: delete slots":          "TestDeals_Guards/the slots as read, if they are deleted",
	"demand: alive":               "TestDemand_Guards/a session that has ended writes none",
	"demand: free demand":         "TestDemand_Guards/a demand that another writer changes is written anew",
	"demand: set demand":          "TestDemand_Guards/a late duplicate does not bring back an earlier demand",
}

func TestGuards_AreAllCaughtSomewhere(t *testing.T) {
	caught := guardsMet(t)
	for name := range testedElsewhere {
		caught = append(caught, name)
	}
	var named []string
	for _, s := range guardSites {
		named = append(named, s.names...)
	}
	slices.Sort(caught)
	slices.Sort(named)
	require.Equal(t, slices.Compact(named), slices.Compact(caught))
}

// coordinatorDirs returns the directories of the packages of coordinator.
func coordinatorDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("../*")
	require.NoError(t, err)
	return append(dirs, "../../../coordinator", "../../../coordinator/strategy", "../../../operator")
}

// sitesIn returns the sites of guards in the packages of directories.
func sitesIn(t *testing.T, dirs ...string) []string {
	t.Helper()
	var sites []string
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "membertest/") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					sites = append(sites, sitesOf(f)...)
				}
			}
		}
	}
	slices.Sort(sites)
	return slices.Compact(sites)
}

// sitesOf returns the sites in a function: calls of registry's constructors.
func sitesOf(f *ast.FuncDecl) (sites []string) {
	makers := []string{"Absent", "At", "Alive", "Dead", "Create", "CreateOwned", "Set", "Delete"}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if p, ok := s.X.(*ast.Ident); ok && p.Name == "registry" && slices.Contains(makers, s.Sel.Name) {
				sites = append(sites, fmt.Sprintf("%s %s", functionName(f), s.Sel.Name))
			}
		}
		return true
	})
	return sites
}

// functionName returns the name of a function, for a method with the type of its receiver.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if id, ok := receiver.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
