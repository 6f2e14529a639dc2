package usercode

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// protected lists each use of code of users: a method of an interface that users implement, or a func value that they
// set, and the function that calls it or passes it on. A use belongs to what keeps its panic from ending a loop of rota.
// errors.Is and errors.As are not listed: each error that code of users returns is settled (contain.Settle).
var protected = map[string][]string{
	"contain.Call or CallApart calls it": {
		"coordinator.Config.Own in coordinator.Join", // which keeps it for ownWork.Start
		"executor.Options.Clock in executor.New",     // in a contain.Clock
		"history.Sink.Write in history.writer.write",
		"history.Trimmer.Trim in history.writer.trimIfDue",
		"history.LogOptions.Mask in history.runLog.add",
		"history.LogOptions.Skip in history.LogOptions.skips",
		"history.LogSink.WriteLogs in history.writer.callWriteLogs",
		"interface{ExitCode} in history.newRun",
		"interface{OutputTail} in history.newRun",
		"io.WriteCloser.Close in handler.filter.close",
		"io.WriteCloser.Write in handler.filter.Write",
		"slog.Handler.Enabled in contain.logHandler.Enabled",
		"slog.Handler.Handle in contain.logHandler.Handle",
		"slog.Handler.WithAttrs in contain.logHandler.WithAttrs",
		"slog.Handler.WithGroup in contain.logHandler.WithGroup",
		"slog.Handler.Enabled in handler.output.record", // a contain.Logger, by observers.runLogs
		"slog.Handler.Handle in handler.output.record",
		"encoding.TextMarshaler.MarshalText in history.valueText", // in a contain.Logger as well
		"error.Error in history.valueText",
		"strategy.Func in strategy.Run",
	},
	"Write or Trim of another Sink calls it": {
		"history.Sink.Write in history.tee.Write",
		"history.SinkFunc in history.SinkFunc.Write",
		"history.Trimmer.Trim in history.tee.Trim",
		"history.LogSink.WriteLogs in history.logTee.WriteLogs",
		"io.Writer.Write in history.jsonLines.writeLocked",
	},
	"callHandler recovers, and handlers call it": {
		"cron.Job.Run in handler.cronJob.Handle",
		"error.Error in contain.Guard",
		"error.Error in executor.PermanentError.Error",
		"error.Error in executor.RetryAfterError.Error",
		"executor.Handler.Handle in executor.callHandler",
		"executor.HandlerFunc in executor.HandlerFunc.Handle",
		"handler.Cmd.Filter in handler.Cmd.Handle",
		"handler.Dataflow.Fetch in handler.Dataflow.Handle",
	},
	"TextOf recovers":               {"error.Error in contain.TextOf", "fmt.Stringer.String in contain.TextOf"},
	"Dataflow.callProcess recovers": {"handler.Dataflow.Process in handler.Dataflow.callProcess"},
	"observers.call recovers": {
		"executor.Observer.ClockChanged in executor.Executor.memberEvents",
		"executor.Observer.FireEnded in executor.Executor.memberEvents",
		"executor.Observer.FiresSkipped in executor.Executor.memberEvents",
		"executor.Observer.LeadershipChanged in executor.Executor.memberEvents",
		"executor.Observer.RunBegun in executor.claimedRun.observeBegun",
		"executor.Observer.RunClaimed in executor.Executor.observeClaimed",
		"executor.Observer.RunEnded in executor.Executor.observeOutcome",
		"executor.Observer.RunLog in executor.observers.runLogs",
		"executor.Observer.RunLog in history.Recorder.Observer", // which sets it
		"executor.Observer.RunCrashed in executor.Executor.queueCrashed",
		"executor.Observer.RunRetried in executor.claimedRun.observeEnded",
		"executor.Observer.SessionChanged in executor.Executor.memberEvents",
		"executor.Observer.ShardsChanged in executor.Executor.memberEvents",
		"history.Options.Annotate in history.Recorder.Observer",
	},
	"the caller of a method of rota gets the panic, in its own goroutine": {
		"operator.MovesOption in operator.Operator.previewMoves",
		"operator.DefineOption in operator.defineOptionsOf",
		"operator.DefinitionFilter in operator.Operator.Definitions",
		"operator.DefinitionFilter in operator.Operator.DefinitionsPage",
		"operator.DeleteOption in operator.Operator.deleteAll",
		"error.Error in operator.fieldErrors.addCompiled",
		"interface{Unwrap} in operator.splitJoined",
		"error.Error in executor.problem.Error",
		"executor.Checker.Check in executor.checkHandler",
		"executor.Middleware in executor.applyMiddleware",
		"interface{Unwrap} in executor.checkHandler",
	},
	"only types of the package have these methods": {
		"interface{own} in executor.checkAll",
		"interface{own} in executor.wrapAll",
		"interface{problems} in executor.checkAll",
	},
	"the error is settled, or one of rota": {
		"error.Error in claimer.RetryError.Error",
		"error.Error in claiming.Input.addFailure",
		"error.Error in explain.NewRecords",
		"error.Error in diagnosis.diagnosis.addUnreadable",
		"error.Error in diagnosis.diagnosis.checkJobs",
		"error.Error in elector.Elector.explainEnd",
		"error.Error in executor.definition.UnmarshalJSON",
		"error.Error in executor.handBackError",
		"error.Error in history.isSQLiteBusy",
		"error.Error in history.newRun",
		"error.Error in history.logs.end",
		"error.Error in operator.Operator.explainRecords",
	},
}

func TestUserCode_IsCalledWhereAPanicIsCaught(t *testing.T) {
	found := findUses(t)
	listed := map[string]bool{}
	for _, uses := range protected {
		for _, use := range uses {
			listed[use] = true
			assert.True(t, found[use], "not found any more: %s", use)
		}
	}
	for _, use := range slices.Sorted(maps.Keys(found)) {
		assert.True(t, listed[use], "code of users is called: %s. Have internal/contain call it, or list what catches its panic", use)
	}
}

// roots are the packages that call code of users. Other packages call none, or are called by tests and commands.
var roots = []string{"./executor/...", "./coordinator/...", "./operator", "./internal/group/...", "./history", "./handler", "./internal/contain"}

// findUses returns all uses, as "method or func value in function".
func findUses(t *testing.T) map[string]bool {
	t.Helper()
	fset := token.NewFileSet()
	exports := map[string]string{}
	var own []listed
	for _, p := range listPackages(t) {
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && !strings.HasSuffix(p.ImportPath, "test") { // test machinery may panic
			own = append(own, p)
		}
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	found := map[string]bool{}
	for _, p := range own {
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
		pkg, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info)
		require.NoError(t, err)
		for _, file := range files {
			for _, decl := range file.Decls {
				for what := range usesIn(decl, info) {
					found[what+" in "+pkg.Name()+"."+nameOf(decl)] = true
				}
			}
		}
	}
	return found
}

type listed struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
	DepOnly                 bool
}

func listPackages(t *testing.T) (all []listed) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly"}, roots...)...)
	cmd.Dir = "../../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		require.NoError(t, dec.Decode(&p))
		all = append(all, p)
	}
	return all
}

// nameOf returns the name of a declaration, with its receiver.
func nameOf(decl ast.Decl) string {
	f, ok := decl.(*ast.FuncDecl)
	switch {
	case !ok:
		return "(variables)"
	case f.Recv == nil:
		return f.Name.Name
	}
	recv := types.ExprString(f.Recv.List[0].Type)
	recv, _, _ = strings.Cut(strings.TrimPrefix(recv, "*"), "[")
	return recv + "." + f.Name.Name
}

// usesIn returns the methods and func values of users that a declaration calls or passes on. To compare one with nil
// is no use.
func usesIn(decl ast.Decl, info *types.Info) map[string]bool {
	uses := map[string]bool{}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return !info.Types[n.X].IsNil() && !info.Types[n.Y].IsNil()
		case *ast.SelectorExpr:
			if s, ok := info.Selections[n]; ok {
				if what := selected(s); what != "" {
					uses[what] = true
				}
			}
		case *ast.CallExpr:
			if f, ok := types.Unalias(info.Types[n.Fun].Type).(*types.Named); ok && !info.Types[n.Fun].IsType() && isPublic(f.Obj()) {
				uses[f.Obj().Pkg().Name()+"."+f.Obj().Name()] = true
			}
		}
		return true
	})
	return uses
}

// selected returns the name of a method of an interface that users implement, or of a field that they set with a
// function, and "" for others.
func selected(s *types.Selection) string {
	recv := types.Unalias(s.Recv())
	if p, ok := recv.(*types.Pointer); ok {
		recv = types.Unalias(p.Elem())
	}
	named, isNamed := recv.(*types.Named)
	switch s.Kind() {
	case types.FieldVal:
		if _, ok := s.Type().Underlying().(*types.Signature); ok && isNamed && s.Obj().Exported() && isPublic(named.Obj()) {
			return named.Obj().Pkg().Name() + "." + named.Obj().Name() + "." + s.Obj().Name()
		}
	case types.MethodVal:
		if !types.IsInterface(recv) {
			return ""
		}
		if !isNamed {
			return "interface{" + s.Obj().Name() + "}"
		}
		if obj := named.Obj(); obj.Pkg() == nil || isPublic(obj) || slices.Contains(implemented, obj.Pkg().Name()+"."+obj.Name()) {
			name := obj.Name() + "." + s.Obj().Name()
			if obj.Pkg() != nil {
				name = obj.Pkg().Name() + "." + name
			}
			return name
		}
	}
	return ""
}

// implemented are the interfaces of other modules that users implement for rota.
var implemented = []string{"fmt.Stringer", "slog.LogValuer", "slog.Handler", "io.Writer", "io.WriteCloser", "cron.Job", "encoding.TextMarshaler", "json.Marshaler"}

// isPublic reports whether a type is exported by a package that users import. A Registry is no code of users here.
func isPublic(obj *types.TypeName) bool {
	return obj.Exported() && obj.Pkg() != nil && slices.Contains([]string{"executor", "operator", "coordinator", "strategy", "history", "handler"}, obj.Pkg().Name())
}
