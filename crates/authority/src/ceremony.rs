//! Roots made offline, with a transcript.
