//! Import of CSV, see [`rows`].
#![no_main]

mod rows;

use libfuzzer_sys::fuzz_target;
use links::transfer::Format;

fuzz_target!(|bytes: &[u8]| rows::check(Format::Csv, bytes));
