//! Bringing a certificate to where it is used, on the host it is used on.
//!
//! A [`Target`] says where: files, commands, and the endpoint that must serve it afterwards. [`Deployer`] does it, all or
//! nothing: see [`engine`](Deployer).

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
pub use policy::{EXAMPLE, POLICY_FILE, Policy, PolicyError, PolicyFile, Refusal, Want};
pub use target::{
    ExecTarget, FileMode, FileSpec, HOOK_SECONDS_MAX, HookCommand, InvalidTarget, KeystoreFormat,
    KeystoreTarget, PemTarget, Target, VERIFY_SECONDS_MAX, Verify,
};
pub use verify::VerifyError;
