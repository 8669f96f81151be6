//! Building certificates: what is to be signed, and what was.
