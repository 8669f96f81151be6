//! A whole control plane: `bulla up`, and the clients its users have.

mod certbot;
mod house;
mod life;

pub(crate) use house::House;
