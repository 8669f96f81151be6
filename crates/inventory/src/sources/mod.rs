//! Certificates of clouds and clusters on their way into the inventory.
//!
//! [`Observer`] turns what a source lists into observations, the same as those of endpoints and files. [`keep`] stores what
//! a source showed, after its observations are stored: a crash costs a repetition, never a gap.

mod observer;
mod states;

pub use observer::{CloudRun, ObserveError, Observer, observe};
pub use states::{keep, states_of};
