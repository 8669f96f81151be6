//! The generated code for Envoy's protocols equals the current output of its compiler.

use std::path::Path;

/// To update the generated code: `BULLA_REGENERATE=1 cargo test -p proxy --test all generated`.
#[test]
fn generated_code_matches_the_proto_definition() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (definition, folder, packages) in [
        ("envoy/service/secret/v3/sds.proto", "src/minting", &["envoy.service.secret.v3"][..]),
        (
            "envoy/service/auth/v3/external_auth.proto",
            "src/hooks",
            &["envoy.config.core.v3", "envoy.service.auth.v3"],
        ),
        ("envoy/service/ext_proc/v3/external_processor.proto", "src/hooks", &["envoy.service.ext_proc.v3"]),
    ] {
        let definition = protox::compile([definition], [home.join("proto")]).unwrap();
        let made = tempfile::tempdir().unwrap();
        tonic_prost_build::configure()
            .build_transport(false)
            .emit_rerun_if_changed(false)
            .out_dir(made.path())
            .compile_fds(definition)
            .unwrap();
        for package in packages {
            let made = std::fs::read_to_string(made.path().join(format!("{package}.rs"))).unwrap();
            let committed = home.join(folder).join(format!("{package}.rs"));
            testbed::check_generated(&committed, &made, "cargo test -p proxy --test all generated");
        }
    }
}
