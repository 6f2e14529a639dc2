// Package balance assigns the shards of many jobs to members: evenly by weight within each job, as
// evenly as that allows over all jobs together, and with the fewest moves. It is pure.
//
// # Within a job
//
// Each candidate gets its share of a job, rounded down or up. The shares rounded down are fixed. The
// shards left over, fewer than there are candidates, are the job's extras: some candidates get one more.
// Which ones is the only choice, and it decides both the evenness of the totals and the number
// of moves.
//
// # Over all jobs
//
// The extras of all jobs are chosen together, as a minimum-cost flow from jobs to members. A unit of flow
// is an extra. It costs no move if the member owns one shard more than its minimum already, else one.
//
// Example: jobs x, y and z have one shard each, and members a and b can own any. All three shards are
// extras. Now a owns all of them, so the cheapest flow moves nothing and the totals are 3 and 0. That is
// uneven by more than one, so an extra is transferred along the cheapest path from a to b: x moves, and
// the totals are 2 and 1. They cannot be more even. If b may own none of x, y and z, the path can lead
// over a third member: a passes x to c, and c passes an extra of another job to b.
//
// The steps are:
//
//  1. assignCheapest gives out all extras with the fewest moves.
//  2. evenTotals transfers extras along cheapest paths, from the member with the highest total to a
//     lower one, until no transfer makes the totals more even.
//  3. cancelCycles transfers extras along cycles of negative cost, which saves moves and leaves the totals
//     as even as they are, until there is none. Then no cheaper solution exists.
//
// There may be thousands of jobs but few members, so paths and cycles are searched in a table of members
// only: it has the price of the cheapest transfer between each two members, over all jobs.
//
// # Which shards
//
// When the counts are known, releaseSurplus takes shards from members that own too many, in whole pieces
// of neighbouring shards where possible, and assignFree gives them to members that own too few.
//
// # Blocked shards
//
// A job in which a candidate may not own some shards, because an earlier handler has not returned, does
// not fit this scheme. Such jobs are few and soon over. They are assigned first, shard by shard, and the
// others balance around them.
package balance
