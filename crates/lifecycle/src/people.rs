//! Owners and teams.
