//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
#![allow(missing_docs, unused_attributes)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    document = "../fuzz/fuzz_targets/document.rs",
    conditions = "../fuzz/fuzz_targets/conditions.rs",
    cursor = "../fuzz/fuzz_targets/cursor.rs",
    merge = "../fuzz/fuzz_targets/merge.rs",
    query = "../fuzz/fuzz_targets/query.rs",
}
