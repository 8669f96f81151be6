//! Declares the `cfg` name `batch_model`. The package in `model/` sets it, and compiles this crate's source with a software model
//! of the AVX-512 instructions.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(batch_model)");
    println!("cargo::rerun-if-changed=build.rs");
}
