//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
#![allow(missing_docs, unused_attributes)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    head = "../fuzz/fuzz_targets/head.rs",
    chunked = "../fuzz/fuzz_targets/chunked.rs",
    proxy = "../fuzz/fuzz_targets/proxy.rs",
    hpack = "../fuzz/fuzz_targets/hpack.rs",
    qpack = "../fuzz/fuzz_targets/qpack.rs",
}
