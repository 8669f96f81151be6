//! A PKCS#11 module (OASIS PKCS#11 2.40) whose private keys are those of a key service: `libbulla_pkcs11.so`, for
//! terminators that are there already and load such modules. No private key comes into their processes: certificates of
//! files say which keys there are, and signatures are asked for.
//!
//! - [`config`](Settings): which key services, which certificates.
//! - `identity`: the own certificate for them.
//! - `certificates`: what the files hold. `objects`: the same as PKCS#11 shows it.
//! - `mechanism`: what is signed how. `signature`: from one encoding into another.
//! - `service`: who is asked, on threads of its own.
//! - `setup`: the settings, and what the files hold that they name.
//! - `session`: what a program has under way. `module`: the functions, without their C.
//! - `process`: the module of this process. What forks begins again.
//! - `ffi`: the functions as C calls them; the one place with unsafe code.

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

/// What a function of PKCS#11 gives back when it did not do what it was asked to (section 5.1).
type Outcome<T = ()> = Result<T, cryptoki_sys::CK_RV>;
