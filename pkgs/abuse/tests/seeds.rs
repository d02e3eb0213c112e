//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
#![allow(missing_docs, unused_attributes)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    listener = "../fuzz/fuzz_targets/listener.rs",
    links = "../fuzz/fuzz_targets/links.rs",
    files = "../fuzz/fuzz_targets/files.rs",
    api = "../fuzz/fuzz_targets/api.rs",
    admin = "../fuzz/fuzz_targets/admin.rs",
}
