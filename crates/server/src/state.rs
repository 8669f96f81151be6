//! What every route can reach.
