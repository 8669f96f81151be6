//! Stores certificates from clouds and clusters in the inventory.
//!
//! [`Observer`] converts listed certificates to observations, like observations of endpoints and files. [`keep`] stores the state of a
//! source after its observations are stored, so that a crash causes a repetition but loses nothing.

mod observer;
mod states;

pub use observer::{CloudRun, ObserveError, Observer, observe};
pub use states::{keep, source_states};
