//! Everything a connection out needs: name to address, the connection, TLS, and how much of it at
//! once. What is said over it is somebody else's business.

pub mod budget;
pub mod dial;
pub mod limits;
