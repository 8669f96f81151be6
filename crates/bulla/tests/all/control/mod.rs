//! A whole control plane: `bulla up`, and the clients its users have.

mod agent;
mod certbot;
mod configured;
mod crashes;
mod credentials;
#[cfg(feature = "interop")]
mod credhub;
mod house;
mod life;
#[cfg(feature = "interop")]
mod login;
mod ownership;
#[cfg(feature = "pkcs11")]
mod security_module;
mod transparency;
mod watch;

pub(crate) use house::House;
