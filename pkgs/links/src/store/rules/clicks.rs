//! Clicks: the limits of rows, and the numbers and names with special meanings.

/// The link id that stands for all links.
pub const ALL: i64 = 0;

/// The most rows of a link per day. If there are more referrers, those with the fewest visits are counted as [`OTHER`];
/// among equals, the least recently seen go first. So invented names displace other invented names, not real referrers.
pub const ROWS_PER_DAY: usize = 250;

/// The most rows of all links together per day.
pub const ROWS_PER_DAY_OF_ALL: usize = 5_000;

/// The name under which all further referrers are counted.
pub const OTHER: &str = "(other)";

/// The most referrers in a breakdown.
pub const TOP_REFERRERS: i64 = 100;

/// The day that stands for merged days. No clock reaches it.
pub const OLDER: i32 = i32::MIN;

/// The most rows that one job merges: about as many as a flush of clicks may change, so other jobs wait no longer for
/// it.
pub const MAX_ROWS_FOLDED: usize = 500;

/// The most rows that one transaction of a database server merges. It hands each of them over, and nobody waits for it.
pub const MAX_ROWS_FOLDED_REMOTE: usize = 20_000;

/// The most links that one job looks at. Each may cost a read from disk.
pub const MAX_LINKS_FOLDED: usize = 250;

/// The hours after which a job goes to no further link: one day's hours of all links that it may look at. There are
/// more hours to delete if the retention was shortened.
pub const MAX_HOURS_FORGOTTEN: usize = 24 * MAX_LINKS_FOLDED;
