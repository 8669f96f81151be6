//! A whole control plane: `bulla up`, and the clients its users have.

mod agent;
mod certbot;
mod house;
mod life;

pub(crate) use house::House;
