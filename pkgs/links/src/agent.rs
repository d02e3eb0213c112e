//! Coarse user agents: enough to tell people from machines, too little to tell people apart.

/// What kind of program followed a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Agent {
    /// No `User-Agent` at all.
    None = 0,
    /// Anything not named below.
    Other = 1,
    /// Crawlers, previews and monitors.
    Bot = 2,
    /// curl, wget, HTTP libraries.
    Tool = 3,
    /// Chrome and its kin.
    Chrome = 4,
    /// Firefox.
    Firefox = 5,
    /// Safari.
    Safari = 6,
    /// Edge.
    Edge = 7,
}
