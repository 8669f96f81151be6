//! A key service that is down, and one that does not answer.

use std::sync::Arc;
use std::time::Instant;

use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use futures_util::future::{BoxFuture, pending};
use keys::{Deadline, KeyRef, KeyType, PrivateKey, Scheme, SignError, Signer};

use crate::world::{TIMEOUT, World, in_a_process, initialised, private_key, session, until};

const DIGEST: [u8; 32] = [7; 32];

#[test]
fn signing_recovers_when_the_service_returns() {
    in_a_process("service::signing_recovers_when_the_service_returns_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn signing_recovers_when_the_service_returns_() {
    let mut world = World::new();
    let module = initialised();
    let session = session(&module);
    let key = private_key(&session, "p256");
    session.sign(&Mechanism::Ecdsa, key, &DIGEST).unwrap();
    world.stop();
    let result = session.sign(&Mechanism::Ecdsa, key, &DIGEST);
    assert!(matches!(result, Err(Error::Pkcs11(RvError::DeviceError, _))), "{result:?}");
    world.serve();
    until("it signs", || session.sign(&Mechanism::Ecdsa, key, &DIGEST).is_ok());
}

/// A key that never answers.
#[derive(Debug)]
struct Silent(PrivateKey);

impl Signer for Silent {
    fn key_type(&self) -> KeyType {
        self.0.key_type()
    }

    fn spki(&self) -> &[u8] {
        self.0.spki()
    }

    fn sign<'a>(&'a self, _: &'a [u8], _: Deadline) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(pending())
    }

    fn sign_digest<'a>(
        &'a self,
        _: Scheme,
        _: &'a [u8],
        _: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(pending())
    }
}

#[test]
fn sign_timeout_limits_the_wait_for_a_signature() {
    in_a_process("service::sign_timeout_limits_the_wait_for_a_signature_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn sign_timeout_limits_the_wait_for_a_signature_() {
    let world = World::with("sign_timeout_ms = 300");
    let silent = PrivateKey::generate(KeyType::P256).unwrap();
    world.certify("silent", &silent);
    world.put(vec![Arc::new(Silent(silent)) as KeyRef]);
    let module = initialised();
    let session = session(&module);
    let began = Instant::now();
    let late = session.sign(&Mechanism::Ecdsa, private_key(&session, "silent"), &DIGEST);
    assert!(matches!(late, Err(Error::Pkcs11(RvError::DeviceError, _))), "{late:?}");
    assert!(began.elapsed() < TIMEOUT / 2, "the service's own time is longer");
    // Other keys still sign.
    let key = private_key(&session, "p256");
    until("it signs", || session.sign(&Mechanism::Ecdsa, key, &DIGEST).is_ok());
}

#[test]
fn unknown_key_is_not_reported_as_a_device_error() {
    in_a_process("service::unknown_key_is_not_reported_as_a_device_error_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn unknown_key_is_not_reported_as_a_device_error_() {
    let world = World::new();
    world.certify("foreign", &PrivateKey::generate(KeyType::P256).unwrap());
    let module = initialised();
    let session = session(&module);
    let refused = session.sign(&Mechanism::Ecdsa, private_key(&session, "foreign"), &DIGEST);
    assert!(matches!(refused, Err(Error::Pkcs11(RvError::FunctionFailed, _))), "{refused:?}");
}
