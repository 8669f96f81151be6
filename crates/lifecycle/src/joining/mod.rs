//! How hosts join the control plane: what agents and nodes have in common.

pub mod client;
