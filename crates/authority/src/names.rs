//! Which names a profile allows.
