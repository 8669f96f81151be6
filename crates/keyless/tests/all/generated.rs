//! The generated code in the repository equals what the protocol compiler generates now.

use std::path::Path;

/// To accept new output: `BULLA_REGENERATE=1 cargo test -p keyless --test all generated`.
#[test]
fn generated_code_matches_the_protocol_definition() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let definition = protox::compile(["bulla/keys/v1/keys.proto"], [home.join("proto")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(folder.path())
        .compile_fds(definition)
        .unwrap();
    let made = std::fs::read_to_string(folder.path().join("bulla.keys.v1.rs")).unwrap();
    let committed = home.join("src/native/bulla.keys.v1.rs");
    testbed::check_generated(&committed, &made, "cargo test -p keyless --test all generated");
}
