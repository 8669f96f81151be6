//! Compiles the source of crate `batch` with a software model of the AVX-512 instructions.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(batch_model)");
    println!("cargo::rustc-cfg=batch_model");
    println!("cargo::rerun-if-changed=build.rs");
}
