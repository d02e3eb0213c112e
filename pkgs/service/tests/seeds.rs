//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
#![allow(missing_docs, unused_attributes)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    forwarded = "../fuzz/fuzz_targets/forwarded.rs",
    hosts = "../fuzz/fuzz_targets/hosts.rs",
    settings = "../fuzz/fuzz_targets/settings.rs",
}
