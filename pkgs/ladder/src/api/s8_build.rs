//! Stage 8: the build.
//!
//! The article: 45,000 to 52,000 requests/s, with fat LTO, one codegen unit, panic=abort and target-cpu=native. The
//! program is the same as in stage 7; the bench builds it a second time, with the workspace's release profile and for
//! this CPU.

use super::s7_kernel::serve;
use crate::stage::Stage;

/// The stage.
pub const STAGE: Stage = Stage {
    name: "LTO, native",
    claimed_qps: 52_000,
    change: "The compiler sees all crates at once and inlines across them, leaves out what unwinding needs, and may \
             use every instruction of this CPU.",
    serve,
};
