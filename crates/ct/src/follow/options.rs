//! How a log is followed.

use std::time::Duration;

use outbound::rate::{Pace, Rate};

/// Where to begin in a log that was not followed before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// From new entries on. Search services cover older ones.
    Head,
    /// With the first entry: terabytes, at a large log.
    Beginning,
}

/// How to follow.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// Where to begin.
    pub start: Start,
    /// Tiles fetched at once. Each may take [`crate::entry::DATA_TILE_OCTETS_MAX`], usually a megabyte.
    pub tiles_at_once: usize,
    /// Tiles of one step, and so of one transaction of the caller's.
    pub tiles_a_step: usize,
    /// How long entries may wait in a tile that is not full until it is read all the same. Reading it at once would
    /// fetch it again with every checkpoint.
    pub partial_patience: Duration,
    /// Requests a second and a minute.
    pub pace: Pace,
    /// For one answer.
    pub answer_limit: Duration,
    /// A wait for the pace that is longer is told instead.
    pub patience: Duration,
    /// How old the newest checkpoint may be: the log's maximum merge delay (RFC 6962 section 3), a day at most logs.
    pub merge_delay: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            start: Start::Head,
            tiles_at_once: 4,
            tiles_a_step: 64,
            // The largest logs fill a tile in two seconds, the smallest in hours.
            partial_patience: Duration::from_secs(300),
            // 12 million entries a day, the most a log was seen to grow by, are 0.5 tiles a second: room to catch up.
            pace: Pace { per_second: Some(Rate::per_second(20).with_burst(10)), per_minute: None },
            answer_limit: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            merge_delay: Duration::from_secs(86_400),
        }
    }
}
