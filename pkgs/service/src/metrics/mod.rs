//! Prometheus metrics.
//!
//! Each worker counts in its own [`LocalCounter`]s and [`LocalHistogram`]s, which cost a plain load and store. A
//! [`Family`] sums them over the workers when somebody scrapes.

mod build;
mod family;
mod local;
mod process;

pub use build::{BuildArgs, register as register_build};
pub use family::{Family, Labels, MetricValue};
pub use local::{BOUNDS, LocalCounter, LocalHistogram, Snapshot};
pub use process::register as register_process;
pub use prometheus_client::registry::Registry;

/// The media type of [`encode`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All registered metrics, as OpenMetrics text.
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)
        .expect("a string takes all that is written");
    text
}
