//! Who can issue: our authority and others.
