// Package handler has ready-made handlers for the jobs of package executor: [Command] and
// [Shell] run a program, [HTTP] sends a request, [Dataflow] fetches and processes items page by
// page, [Cron] and [Func] call code that was written for a scheduler in one process. Any other kind is one method, Handle of [executor.Handler].
//
// # Templates
//
// Arguments of programs, and URLs, headers and bodies of requests are templates of the run, in
// the language of text/template. They have the exported fields of [executor.Run] by name, such
// as {{.Shard}}, {{.ShardParam}} and {{.Fence}}. {{.FireTime}} prints as RFC 3339 in UTC, and
// {{.FireTime.Format "2006-01-02"}} in another layout. Beside the functions of text/template
// there is json, which writes a value as JSON: {{json .ShardParam}}, or {{json .}} for the run.
//
// A template is parsed once, and Register reports those that are wrong, also those with a field
// that a run does not have.
//
// # Trust
//
// Programs, scripts, URLs and templates are part of the code. The registry holds none of them,
// so a client that may write to the registry cannot choose the code that runs. It can choose
// Param and ShardParam, which are data: an environment variable, a single argument, or an
// escaped part of a URL. They are never read as a template and never part of a script.
package handler
