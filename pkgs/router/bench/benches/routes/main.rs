//! The router compared with its peers, in one run: how long each takes to find a route.

mod lines;
mod matching;
mod table;

use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use lines::LINES;

fn main() {
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("criterion");
    let mut criterion = Criterion::default()
        .output_directory(&results)
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(150))
        .measurement_time(Duration::from_millis(400))
        .configure_from_args();
    for line in &LINES {
        let mut group = criterion.benchmark_group(format!("match/{}", line.name));
        matching::measure(&mut group, line);
        group.finish();
    }
    criterion.final_summary();
    table::print(&results);
}
