//! A PKCS#11 module (OASIS PKCS#11 2.40) for private keys in a key service: `libbulla_pkcs11.so`, for existing TLS terminators that
//! load such modules. Private keys never enter their processes: certificate files define the available keys, and the key service
//! signs.
//!
//! - [`config`](Settings): key services and certificates.
//! - `identity`: the client certificate for key services.
//! - `certificates`: the certificate files. `objects`: their representation in PKCS#11.
//! - `mechanism`: signature mechanisms and the encoding of signatures. `signature`: parsing of DigestInfos.
//! - `service`: the client of the key service, on its own threads.
//! - `setup`: the settings and the content of their files.
//! - `session`: sessions of a program. `module`: the functions without their C interface.
//! - `process`: the module of this process. A forked process must initialize its own module.
//! - `ffi`: the C functions; the only unsafe code.

mod certificates;
mod config;
mod ffi;
mod identity;
mod mechanism;
mod module;
mod objects;
mod process;
mod report;
mod service;
mod session;
mod setup;
mod signature;

pub use config::{ConfigError, Settings};

/// Result of a PKCS#11 function. The error is its return value (PKCS#11 section 5.1).
type Outcome<T = ()> = Result<T, cryptoki_sys::CK_RV>;
