//! The generated code for secret discovery equals the current output of its compiler.

use std::path::Path;

/// To update the generated code: `BULLA_REGENERATE=1 cargo test -p proxy --test all generated`.
#[test]
fn generated_code_matches_the_proto_definition() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let definition = protox::compile(["envoy/service/secret/v3/sds.proto"], [home.join("proto")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(folder.path())
        .compile_fds(definition)
        .unwrap();
    let made = std::fs::read_to_string(folder.path().join("envoy.service.secret.v3.rs")).unwrap();
    let kept = home.join("src/minting/envoy.service.secret.v3.rs");
    testbed::check_generated(&kept, &made, "cargo test -p proxy --test all generated");
}
