//! Roots and intermediates.
