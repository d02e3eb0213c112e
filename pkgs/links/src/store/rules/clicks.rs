//! Clicks: how many rows there may be of them, and which numbers and names stand for others.

/// The link that stands for all of them.
pub const ALL: i64 = 0;

/// Rows a link may have for a day. Where there are more referrers, those with the fewest visits, and of these
/// the ones that were seen last the longest ago, give way and count under [`OTHER`]: so whoever makes names up
/// drives out other such names, not those that visits really come from.
pub const ROWS_PER_DAY: usize = 250;

/// Rows all links together may have for a day.
pub const ROWS_PER_DAY_OF_ALL: usize = 5_000;

/// The name of all further referrers.
pub const OTHER: &str = "(other)";

/// Referrers that a breakdown names.
pub const TOP_REFERRERS: i64 = 100;

/// The day that stands for those that were folded. No clock shows it.
pub const OLDER: i32 = i32::MIN;

/// Rows that one piece of work folds at most: about what a flush of clicks may change, so that nobody waits longer for it.
pub const MAX_ROWS_FOLDED: usize = 500;

/// Links that one piece of work looks at. Each may cost a read from the disk.
pub const MAX_LINKS_FOLDED: usize = 250;

/// Hours after which a piece of work forgets no more links': a day's of as many as it looks at. There are more where hours
/// are to be told apart for fewer days than before.
pub const MAX_HOURS_FORGOTTEN: usize = 24 * MAX_LINKS_FOLDED;
