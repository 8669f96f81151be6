//! The second person.
