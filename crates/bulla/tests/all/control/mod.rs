//! A whole control plane: `bulla up`, and the clients its users have.

mod agent;
mod certbot;
mod configured;
mod crashes;
mod credential_socket;
mod credentials;
#[cfg(feature = "interop")]
mod credhub;
mod exchange;
mod house;
#[cfg(feature = "interop")]
mod kv;
mod life;
#[cfg(feature = "interop")]
mod login;
mod ownership;
mod rotation;
mod sealing;
#[cfg(feature = "pkcs11")]
mod security_module;
mod transparency;
mod watch;

pub(crate) use house::House;
