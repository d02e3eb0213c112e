//! A ladder for people, for programs, and as a picture.

use std::fs;
use std::path::Path;

use bench::Error;
use bench::chart::{self, Bar, Tone};
use bench::report::Report;
use comfy_table::{CellAlignment, Table, presets};
use ladder::verdict::Verdict;
use serde::Serialize;

use crate::steps::{Ladder, Step};

/// What is written for programs: the steps, and the report they come from.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    ladder: &'a Ladder,
    #[serde(flatten)]
    report: &'a Report,
}

/// Prints it for people.
pub fn print(ladder: &Ladder, report: &Report) {
    println!("\n{}\n", ladder.title);
    report.conditions.iter().for_each(|line| println!("{line}"));
    println!("noise: two processes of one stage may be {:.1} % apart", ladder.noise * 100.0);
    println!("{}", table(ladder));
    println!(
        "from first to last: CPU time per request / {:.1}, QPS x{:.1}; by the article QPS x{:.0}\n",
        ladder.gain, ladder.qps_gain, ladder.claimed_gain
    );
    for Step { number, name, moved, .. } in &ladder.steps {
        println!("{number}. {name}: {moved}");
    }
}

/// Writes it as `ladder-PART.json` and as a chart, `ladder-PART.svg`, into a directory.
pub fn write(ladder: &Ladder, report: &Report, directory: &Path, part: &str) -> Result<(), Error> {
    let (json, svg) =
        (directory.join(format!("ladder-{part}.json")), directory.join(format!("ladder-{part}.svg")));
    let bars: Vec<Bar> = ladder.steps.iter().map(bar).collect();
    chart::write_bars(&svg, &format!("{}: CPU time per request", ladder.title), &bars)?;
    let file = fs::File::create(&json).map_err(Error::file(&json))?;
    serde_json::to_writer_pretty(file, &Written { ladder, report })
        .map_err(|error| Error::File { path: json.clone(), source: error.into() })?;
    println!("written: {} {}", json.display(), svg.display());
    Ok(())
}

fn bar(step: &Step) -> Bar {
    let (note, tone) = match (step.verdict, step.gain, step.claimed_gain) {
        (Some(verdict), Some(gain), Some(claimed)) => {
            let tone = match verdict {
                Verdict::Helps => Tone::Good,
                Verdict::WithinNoise => Tone::Neutral,
                Verdict::CostsMore => Tone::Bad,
            };
            (format!("{}, x{:.2} (article x{claimed:.2})", verdict.words(), gain.median), tone)
        }
        _ => (String::new(), Tone::Neutral),
    };
    Bar { label: format!("{} {}", step.number, step.name), cpu_us: step.cpu_us, note, tone }
}

fn table(ladder: &Ladder) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "stage",
        "QPS",
        "p99",
        "CPU µs/request",
        "CPU gain",
        "between",
        "QPS gain",
        "verdict",
        "article's QPS",
        "article's gain",
    ]);
    let times = |gain: Option<f64>| gain.map_or_else(String::new, |gain| format!("x{gain:.2}"));
    for step in &ladder.steps {
        table.add_row([
            format!("{} {}", step.number, step.name),
            format!("{:.0}", step.qps),
            format!("{:.2} ms", step.p99_us / 1000.0),
            format!("{:.2}", step.cpu_us),
            times(step.gain.map(|gain| gain.median)),
            step.gain.map_or_else(String::new, |gain| format!("{:.2}-{:.2}", gain.low, gain.high)),
            times(step.qps_gain),
            step.verdict.map_or("", |verdict| verdict.words()).into(),
            step.claimed_qps.to_string(),
            times(step.claimed_gain),
        ]);
    }
    for column in [1, 2, 3, 4, 5, 6, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
