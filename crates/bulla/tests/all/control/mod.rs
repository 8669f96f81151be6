//! A whole control plane: `bulla up`, and its clients.

#[cfg(target_os = "linux")]
mod abuse;
mod agent;
mod audit_log;
mod certbot;
mod collector;
mod configured;
mod console;
mod crashes;
mod credential_socket;
mod credentials;
mod credhub;
mod data_folder;
#[cfg(target_os = "linux")]
mod documentation;
mod exchange;
#[cfg(target_os = "linux")]
mod full_disk;
mod gates;
mod held_requests;
mod house;
mod journey;
mod journey_trace;
mod key_node;
mod key_policies;
mod key_spans;
mod kv;
mod leased_identities;
mod leases;
mod life;
mod listings;
mod login;
mod new_root;
mod ownership;
mod places;
#[cfg(target_os = "linux")]
mod quick_start;
mod restrictions;
mod rotation;
mod sealing;
mod security_module;
mod signer_apart;
mod signing;
#[cfg(target_os = "linux")]
mod sites;
mod tasks;
mod transparency;
mod upgrade;
mod watch;

pub(crate) use house::House;
