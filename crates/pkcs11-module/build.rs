//! How the library is linked.

fn main() {
    // Programs unload it at C_Finalize (nginx at each reload). The libraries below keep values for each thread, and what
    // frees them at a thread's end is code in here: so it stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
