//! Deployment of a certificate on the host that uses it.
//!
//! A [`Target`] names files, commands and the endpoint that must serve the certificate. [`Deployer`] deploys all of it or nothing:
//! see [`engine`](Deployer).

mod check;
mod engine;
mod fault;
mod file;
mod hook;
mod journal;
mod judge;
mod keystore;
mod plan;
mod policy;
mod target;
mod verify;

pub use engine::{DeployError, Deployer, Outcome, Recovery, Report, missing_rules};
#[doc(hidden)]
pub use fault::{Fault, Halted};
pub use file::FileError;
pub use hook::HookError;
pub(crate) use hook::name_text;
pub use journal::BACKUPS_KEPT;
pub use keystore::KeystoreError;
pub use policy::{DeniedAction, EXAMPLE, POLICY_FILE, Policy, PolicyError, PolicyFile, Refusal};
pub use target::{
    ExecTarget, FileMode, FileSpec, HOOK_SECONDS_MAX, HookCommand, InvalidTarget, KeystoreFormat,
    KeystoreTarget, PemTarget, Target, VERIFY_SECONDS_MAX, Verify,
};
pub use verify::VerifyError;
