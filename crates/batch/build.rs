//! `batch_model` is set by the package in `model/`, which compiles this crate's source with a model of the instructions.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(batch_model)");
    println!("cargo::rerun-if-changed=build.rs");
}
