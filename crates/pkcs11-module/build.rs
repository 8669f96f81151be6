//! Linker options of the library.

fn main() {
    // Keep the library in memory. Programs unload it at C_Finalize (nginx at each reload), but its dependencies store thread-local
    // values whose destructors are code of this library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
