//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
#![allow(missing_docs, unused_attributes)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    conninfo = "../fuzz/fuzz_targets/conninfo.rs",
}
