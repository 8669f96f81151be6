//! Everything that needs more than one module, or a real peer.
