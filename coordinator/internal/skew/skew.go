package skew

// A wrong clock leaves watermarks ahead of all clocks, of an instance that was alone or one of
// two, or an epoch that begins only then. When the clock is right again, the shards concerned
// wait for that time. Nothing repairs that by itself: it is unknown which of the fires until
// then were run. The owner detects it when it looks for due work, logs it and publishes it in its
// member record, and the leader copies it into Plan.Problem.

// Reach is how far ahead of a clock something may be that clocks within the limit have written,
// in limits: both may be that far from the median, and new definitions begin so much later.
const Reach = 3
