//! The fuzz targets over their seeds; `make fuzz` runs them with a fuzzer.
// Two targets share a file.
#![allow(missing_docs, unused_attributes, clippy::duplicate_mod)]

extern crate seeds as libfuzzer_sys;

seeds::targets! {
    request = "../fuzz/fuzz_targets/request.rs",
    import_csv = "../fuzz/fuzz_targets/import_csv.rs",
    import_json = "../fuzz/fuzz_targets/import_json.rs",
    agent = "../fuzz/fuzz_targets/agent.rs",
    code = "../fuzz/fuzz_targets/code.rs",
    form = "../fuzz/fuzz_targets/form.rs",
    list = "../fuzz/fuzz_targets/list.rs",
    target = "../fuzz/fuzz_targets/target.rs",
    when = "../fuzz/fuzz_targets/when.rs",
}
