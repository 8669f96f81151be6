//! Forked processes, such as the workers of TLS terminators.
#![allow(unsafe_code, reason = "a fork is one")]

use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use keys::{Hash, Scheme};

use crate::world::{TIMEOUT, World, in_a_process, initialised, openssl_verifies, private_key, session, spki};

const DIGEST: [u8; 32] = [7; 32];

/// Runs a closure in a forked child and returns its result.
fn in_a_child(does: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs the closure on its only thread, and exits without running anything else of the parent: no destructors,
    // no exit handlers.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(does)).unwrap_or(false);
        // SAFETY: only ends the process.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let began = Instant::now();
    let mut status = 0;
    // SAFETY: waits for our own child and writes its status to our integer.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > TIMEOUT {
            // SAFETY: our own child, which was not reaped yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn child(module: &Pkcs11) -> bool {
    let before = module.get_slots_with_token();
    if !matches!(before, Err(Error::Pkcs11(RvError::CryptokiNotInitialized, _))) {
        return false;
    }
    if module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).is_err() {
        return false;
    }
    let own = session(module);
    let signed = own.sign(&Mechanism::Ecdsa, private_key(&own, "p256"), &DIGEST).is_ok();
    drop(own);
    signed && module.clone().finalize().is_ok()
}

#[test]
fn forked_child_reinitializes_and_parent_continues() {
    in_a_process("fork::forked_child_reinitializes_and_parent_continues_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn forked_child_reinitializes_and_parent_continues_() {
    let world = World::new();
    let module = initialised();
    let session = session(&module);
    let key = private_key(&session, "p256");
    // Before the parent has a connection, and after.
    assert!(in_a_child(|| child(&module)));
    let first = session.sign(&Mechanism::Ecdsa, key, &DIGEST).unwrap();
    assert!(openssl_verifies(&spki(&world, "p256"), Scheme::Ecdsa(Hash::Sha256), &DIGEST, &first));
    assert!(in_a_child(|| child(&module)));
    assert!(in_a_child(|| child(&module) && in_a_child(|| child(&module))), "and so does a child's child");
    session.sign(&Mechanism::Ecdsa, key, &DIGEST).unwrap();
}

#[test]
fn forked_child_uses_files_read_by_its_parent() {
    in_a_process("fork::forked_child_uses_files_read_by_its_parent_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn forked_child_uses_files_read_by_its_parent_() {
    let world = World::new();
    let module = initialised();
    // Workers that run as another user cannot read these files.
    std::fs::remove_file(std::env::var_os("BULLA_PKCS11_CONFIG").unwrap()).unwrap();
    std::fs::rename(world.chains(), world.chains().with_extension("gone")).unwrap();
    assert!(in_a_child(|| child(&module)));
}
