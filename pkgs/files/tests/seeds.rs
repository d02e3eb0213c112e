//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
#![allow(missing_docs, unused_attributes)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    request = "../fuzz/fuzz_targets/request.rs",
    range = "../fuzz/fuzz_targets/range.rs",
    listing = "../fuzz/fuzz_targets/listing.rs",
    nginx = "../fuzz/fuzz_targets/nginx.rs",
    pattern = "../fuzz/fuzz_targets/pattern.rs",
    signed = "../fuzz/fuzz_targets/signed.rs",
    negotiation = "../fuzz/fuzz_targets/negotiation.rs",
    path = "../fuzz/fuzz_targets/path.rs",
    rules = "../fuzz/fuzz_targets/rules.rs",
}
