//! Routes: authorities.
