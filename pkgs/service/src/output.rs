//! Output of commands: tables for people, one line of JSON for programs.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::marker::PhantomData;

use comfy_table::presets::{NOTHING, UTF8_HORIZONTAL_ONLY};
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

/// A terminal with fewer columns cannot show a table. Some terminals report none.
const NARROW: u16 = 60;

/// Standard output is closed or full.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
pub struct Closed(#[source] pub io::Error);

/// Standard output of commands that fail with `E`.
pub struct Output<E> {
    json: bool,
    terminal: bool,
    stdout: BufWriter<Stdout>,
    errors: PhantomData<fn() -> E>,
}

impl<E: From<Closed>> Output<E> {
    /// Standard output, for programs (`json`) or people.
    pub fn new(json: bool) -> Self {
        let stdout = io::stdout();
        Self { json, terminal: stdout.is_terminal(), stdout: BufWriter::new(stdout), errors: PhantomData }
    }

    /// Whether a program reads.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Prints `value` as one line of JSON, or prints it for people by `people`.
    pub fn show<T: Serialize>(
        &mut self,
        value: &T,
        people: impl FnOnce(&T, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.json {
            return people(value, self);
        }
        serde_json::to_writer(&mut self.stdout, value).map_err(io::Error::from).map_err(Closed)?;
        self.line("")
    }

    /// Prints a line.
    pub fn line(&mut self, line: impl Display) -> Result<(), E> {
        Ok(writeln!(self.stdout, "{line}").map_err(Closed)?)
    }

    /// Prints a table: with rules and fitted to a terminal's width, or plain and uncut elsewhere.
    pub fn table<const COLUMNS: usize>(
        &mut self,
        header: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) -> Result<(), E> {
        let mut table = self.bare_table();
        table.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
        table.add_rows(rows.into_iter().map(|row| row.map(|text| harmless(&text))));
        self.print(table)
    }

    /// Prints names and values, one pair per line.
    pub fn pairs(&mut self, pairs: &[(&str, String)]) -> Result<(), E> {
        let mut table = self.bare_table();
        for (name, value) in pairs {
            table.add_row([Cell::new(name).add_attribute(Attribute::Bold), Cell::new(harmless(value))]);
        }
        self.print(table)
    }

    /// The writer for raw bytes.
    pub fn raw(&mut self) -> &mut dyn Write {
        &mut self.stdout
    }

    /// Prints text unchanged.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub fn text(&mut self, text: &str) -> Result<(), E> {
        Ok(self.stdout.write_all(text.as_bytes()).map_err(Closed)?)
    }

    /// Writes buffered output.
    pub fn flush(&mut self) -> Result<(), E> {
        Ok(self.stdout.flush().map_err(Closed)?)
    }

    fn bare_table(&self) -> Table {
        let mut table = Table::new();
        if self.terminal && table.width().is_some_and(|width| width >= NARROW) {
            table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        }
        table
    }

    fn print(&mut self, mut table: Table) -> Result<(), E> {
        for column in table.column_iter_mut() {
            column.set_padding((0, 2)).set_cell_alignment(CellAlignment::Left);
        }
        self.line(table.trim_fmt())
    }
}

/// Foreign text for a terminal, without control characters that could move its cursor.
fn harmless(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
