//! What may be issued, as a value.
