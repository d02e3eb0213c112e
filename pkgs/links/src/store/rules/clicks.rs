//! Clicks: the limits of rows, and the numbers and names with special meanings.

/// The link id that stands for all links.
pub const ALL: i64 = 0;

/// The most rows of a link per day. If there are more referrers, those with the fewest visits, and of these the least
/// recently seen, are counted as [`OTHER`]. So invented names displace other invented names, not real referrers.
pub const ROWS_PER_DAY: usize = 250;

/// The most rows of all links together per day.
pub const ROWS_PER_DAY_OF_ALL: usize = 5_000;

/// The name for all further referrers.
pub const OTHER: &str = "(other)";

/// The most referrers in a breakdown.
pub const TOP_REFERRERS: i64 = 100;

/// The day that stands for merged days. No clock shows it.
pub const OLDER: i32 = i32::MIN;

/// The most rows that one job merges: about what a flush of clicks may change, so that nobody waits longer for it.
pub const MAX_ROWS_FOLDED: usize = 500;

/// The most links that one job looks at. Each may cost a read from disk.
pub const MAX_LINKS_FOLDED: usize = 250;

/// After this many hours, a job deletes no more links' hours: a day's hours of all links that it looks at. There are
/// more if hours are to be kept for fewer days than before.
pub const MAX_HOURS_FORGOTTEN: usize = 24 * MAX_LINKS_FOLDED;
