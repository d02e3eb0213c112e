//! The tables at the end.

use std::fs;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};

use crate::lines::LINES;

/// Prints criterion's results.
pub fn print(results: &Path) {
    println!(
        "\nFind the route of a path and where its parameters are: nanoseconds, medians; x: times the router's.\n"
    );
    let peers = ["matchit", "path-tree", "actix-router"];
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let mut header = vec!["".to_owned(), "router".to_owned()];
    for peer in peers {
        header.extend([peer.to_owned(), "x".to_owned()]);
    }
    let columns = header.len();
    table.set_header(header);
    for line in &LINES {
        let median = |peer: &str| median(results, &format!("match_{}", line.name), peer);
        let router = median("router");
        let mut row = vec![line.name.to_owned(), figure(router)];
        for peer in peers {
            let peer = median(peer);
            let ratio = peer.zip(router).map(|(peer, router)| peer / router);
            row.extend([figure(peer), ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"))]);
        }
        table.add_row(row);
    }
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

/// The median of a measurement in nanoseconds, if this run or an earlier one made it.
fn median(results: &Path, group: &str, peer: &str) -> Option<f64> {
    let file = results.join(group).join(peer).join("new/estimates.json");
    let estimates: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}

fn figure(ns: Option<f64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns >= 1000.0 => format!("{ns:.0}"),
        Some(ns) => format!("{ns:.1}"),
    }
}
